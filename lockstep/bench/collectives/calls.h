// A collective with its buffers, ready to be called again and again.
#pragma once

#include <cstdint>
#include <functional>

#include <torch/types.h>

#include <lockstep/bench/collectives/collective.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// LibTorch's name for a type that is not kByte.
torch::ScalarType scalar_type_of(DataType type);

struct BenchCase {
  BenchCollective collective = BenchCollective::kAllReduce;
  Algorithm algorithm = Algorithm::kAuto;  ///< of all_reduce
  torch::ScalarType dtype = torch::kFloat32;
  std::int64_t bytes = 0;  ///< wanted, of the larger buffer
  bool symmetric = false;
};

/// Making one is a collective where its buffers are symmetric.
class BenchCall {
 public:
  BenchCall(ProcessGroup group, const BenchCase& which);

  /// Of the larger buffer: a whole number of elements, the same for each rank.
  std::int64_t bytes() const {
    return elements_ * static_cast<std::int64_t>(c10::elementSize(dtype_));
  }

  /// Writes what this rank gives: zeros or ones, by call and rank. The call before must be over.
  void write(int call);
  void run() { run_(); }
  /// Starts the call that run() makes and does not wait for it. Null for a collective that this
  /// class cannot start.
  WorkPtr start();
  /// InternalError, naming the rank, when the result of that call is wrong.
  void check(int call) const;

  /// Upper bound of the memory that all ranks of a host need together.
  static double memory_needed(const BenchCase& which, int ranks);

 private:
  torch::Tensor make(std::int64_t elements, bool symmetric);
  void make_buffers(bool symmetric);
  std::function<void()> make_call(Algorithm algorithm);
  int expected(int call) const;

  ProcessGroup group_;
  const BenchCollective collective_;
  Algorithm algorithm_ = Algorithm::kAuto;
  const torch::ScalarType dtype_;
  std::int64_t elements_ = 0;
  torch::Tensor given_;   // undefined where this rank gives nothing
  torch::Tensor result_;  // undefined where it gets nothing
  std::function<void()> run_;
};

}  // namespace lockstep
