// Splits a collective into this rank's stages.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/comm/backends/hierarchical/hierarchical.h>
#include <lockstep/comm/backends/hierarchical/stage_queue.h>

namespace lockstep::hierarchical {

/// A group that stages run on. Numbers its collectives in the order in which they are started,
/// which is the same on all ranks.
class Level {
 public:
  explicit Level(std::shared_ptr<comm::Backend> backend) : backend_(std::move(backend)) {}
  explicit operator bool() const { return backend_ != nullptr; }

  /// Sets the shape for all stages that start from now on. Only stages of equal shapes match.
  void begin(const Shape& shape) { shape_ = shape; }
  /// Starts a collective. `count` is the number of elements of a rank's piece. The tensors are
  /// those of Collective.
  WorkPtr start(CallKind kind, std::int64_t count, torch::Tensor input, torch::Tensor output,
                ReduceOp op = ReduceOp::kSum, int root = -1);

  /// Whether `tensor` lies in symmetric memory, which the group uses in place.
  bool shares(const torch::Tensor& tensor) const { return !backend_->peer_views(tensor).empty(); }

 private:
  const std::shared_ptr<comm::Backend> backend_;
  std::uint64_t number_ = 0;
  Shape shape_;
};

/// Creates the stages of collectives. Half-precision reductions are communicated and computed in
/// float32, and rounded once at the end.
class StageBuilder {
 public:
  explicit StageBuilder(const Parts& parts);

  /// Whether the collective has stages. If not, it must run on the flat group.
  static bool has_stages(const comm::Collective& call);
  /// Creates the stages of a collective for which has_stages() is true.
  std::shared_ptr<StagedCollective> build(const comm::Collective& call);

 private:
  bool is_leader() const { return me_.local_rank == 0; }
  int size() const { return static_cast<int>(locations_.size()); }
  int local_size() const { return local_sizes_[static_cast<std::size_t>(me_.host)]; }
  const RankLocation& location(int rank) const {
    return locations_[static_cast<std::size_t>(rank)];
  }

  void name_shape(StagedCollective& collective, const Shape& shape);
  void barrier(StagedCollective& collective);
  void broadcast(StagedCollective& collective, const comm::Collective& call);
  void reduce(StagedCollective& collective, const comm::Collective& call);
  void all_reduce(StagedCollective& collective, const comm::Collective& call);
  void all_gather(StagedCollective& collective, const comm::Collective& call);
  void reduce_scatter(StagedCollective& collective, const comm::Collective& call);
  torch::Tensor by_rank(const torch::Tensor& by_location, std::int64_t count) const;
  torch::Tensor by_location(const torch::Tensor& by_rank, std::int64_t count) const;

  const std::vector<RankLocation> locations_;
  const RankLocation me_;
  std::vector<int> local_sizes_;  // number of ranks on each host
  int most_local_ = 0;
  Level local_;
  Level leaders_;
};

}  // namespace lockstep::hierarchical
