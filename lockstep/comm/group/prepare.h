// Checks the tensors of a call and turns them into the flat tensors that a backend takes, together
// with the copies to make before and after the operation.
//
// Tensors that a backend can use in place are not copied. A call that keeps the shape of its one
// tensor (all_reduce, broadcast, reduce) takes a contiguous or channels_last tensor as flat memory.
// The shape that ranks compare then lists the sizes in memory order, so [2, 3, 4, 5] in
// channels_last is "2x4x5x3" on all ranks. All other calls and tensors use the logical order of the
// elements. A tensor goes through a copy if it has gaps or another order, if it is one of several
// that are not adjacent, or if it is on a GPU that the backend cannot reach.
//
// A tensor that a backend writes in place gets a new version here, and a tensor that a copy writes
// gets it from that copy, so that autograd notices all writes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/backend_traits.h>
#include <lockstep/comm/call/collective.h>
#include <lockstep/comm/group/device_copies.h>

namespace lockstep::comm {

/// A checked call. For send and recv it has `input` or `output`, and the peer in description.root.
struct Prepared {
  Collective call;
  /// Copies to make before the operation starts: each pair's first tensor, in pinned host memory,
  /// is filled from its second, on a device. The caller makes them and need not block for them.
  TensorPairs loads;
  /// Copies to make at the end of the operation: each pair's first tensor is filled from its
  /// second.
  TensorPairs copies;
};

/// Which tensors a group accepts, and how error messages name the rank.
struct PrepareOptions {
  using Memory = BackendTraits::Memory;
  int rank = 0;
  int size = 1;
  int world_rank = 0;  ///< for error messages
  /// kHost accepts tensors on the CPU, on a GPU, or on a device of `device`'s type; kDevice accepts
  /// only tensors on `device`.
  Memory memory = Memory::kHost;
  torch::Device device = torch::kCPU;
};

/// Checks and prepares calls. Wrong arguments throw ConfigError, for example "rank 1: all_gather:
/// outputs[2] has shape [3], expected [4] like the input". Immutable; safe to use from several
/// threads.
class Prepare {
 public:
  using Tensor = torch::Tensor;
  using Tensors = std::vector<Tensor>;
  using Splits = std::vector<std::int64_t>;

  explicit Prepare(const PrepareOptions& options) : options_(options) {}

  Prepared barrier() const;
  Prepared all_reduce(const Tensor& tensor, ReduceOp op, Algorithm algorithm) const;
  Prepared broadcast(const Tensor& tensor, int root) const;
  Prepared reduce(const Tensor& tensor, int root, ReduceOp op) const;
  Prepared all_gather(const Tensors& outputs, const Tensor& input) const;
  Prepared all_gather_into_tensor(const Tensor& output, const Tensor& input) const;
  Prepared gather(const Tensor& input, const Tensors& outputs, int root) const;
  Prepared scatter(const Tensor& output, const Tensors& inputs, int root) const;
  Prepared reduce_scatter(const Tensor& output, const Tensors& inputs, ReduceOp op) const;
  Prepared reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op) const;
  Prepared all_to_all(const Tensors& outputs, const Tensors& inputs) const;
  Prepared all_to_all_single(const Tensor& output, const Tensor& input, const Splits& output_splits,
                             const Splits& input_splits) const;
  /// One call for each element type.
  std::vector<Prepared> all_reduce_coalesced(const Tensors& tensors, ReduceOp op) const;
  std::vector<Prepared> broadcast_coalesced(const Tensors& tensors, int root) const;
  Prepared send(const Tensor& tensor, int destination, int tag) const;
  Prepared recv(const Tensor& tensor, std::optional<int> source, int tag) const;

  void check_root(const char* call, int root) const;

  /// The checks of send() and recv(), and of whether messages that are under way together overlap.
  /// Both lists have the length of the batch, with undefined tensors in the place of the others.
  void check_send(const Tensor& tensor, int destination, int tag) const;
  void check_recv(const Tensor& tensor, std::optional<int> source, int tag) const;
  void check_batch(const Tensors& received, const Tensors& sent) const;

 private:
  /// One argument of a call: a tensor, or a list of tensors.
  struct Argument {
    const char* name;
    at::TensorList tensors;
    bool is_list = false;
    Argument(const char* its_name, const Tensor& tensor) : name(its_name), tensors(tensor) {}
    Argument(const char* its_name, const Tensors& list)
        : name(its_name), tensors(list), is_list(true) {}
  };
  template <class... Values>
  [[noreturn]] void fail(const char* call, const Values&... values) const;
  void check_tensor(const char* call, const char* name, const Tensor& tensor, int index = -1) const;
  void check_written(const char* call, const char* name, const Tensor& tensor,
                     int index = -1) const;
  void check_reducible(const char* call, torch::ScalarType type, ReduceOp op) const;
  void check_tensor_list(const char* call, const char* name, const Tensors& list,
                         const Tensor& like, const char* like_name) const;
  void check_types(const char* call, const Tensor& output, const Tensor& input) const;
  void check_apart(const char* call, const Argument& written, const Argument& read) const;
  void check_apart_but_own(const char* call, const Argument& written, const Argument& read) const;
  bool is_own_piece(const Tensor& whole, const Tensor& piece) const;
  void check_peer(const char* call, int peer, int tag) const;
  void describe_splits(const char* call, const Tensor& like, Collective& collective) const;
  std::int64_t check_splits(const char* call, const char* name, const Tensor& tensor,
                            const Splits& splits, Splits& elements) const;

  bool staged(const Tensor& tensor) const {
    return options_.memory == PrepareOptions::Memory::kHost && !tensor.is_cpu();
  }
  torch::TensorOptions scratch_options(const Tensor& tensor) const;
  Prepared in_place(CallKind kind, const Tensor& tensor, bool writes) const;
  void fill(const Tensor& scratch, const Tensor& tensor, Prepared& prepared) const;
  Tensor read(const Tensor& tensor, Prepared& prepared) const;
  Tensor read_list(const Tensors& list, Prepared& prepared) const;
  void only_root_gives(Prepared& prepared, int root) const;
  Tensor write(const Tensor& tensor, Prepared& prepared) const;
  Tensor write_list(const Tensors& list, Prepared& prepared, bool writes = true) const;
  std::vector<Prepared> coalesced(CallKind kind, const char* call, const Tensors& tensors,
                                  bool writes) const;

  PrepareOptions options_;
};

}  // namespace lockstep::comm
