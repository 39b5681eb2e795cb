#include <lockstep/comm/backends/hierarchical/hierarchical.h>

#include <utility>

#include <lockstep/comm/backends/hierarchical/stage_builder.h>
#include <lockstep/comm/backends/hierarchical/stage_queue.h>
#include <lockstep/core/error.h>

namespace lockstep::hierarchical {
namespace {

// A message inside a host. It reports the sender's rank in the whole group.
class LocalMessage final : public Work {
 public:
  LocalMessage(WorkPtr work, int source) : work_(std::move(work)), source_(source) {}
  void wait(std::optional<std::chrono::milliseconds> timeout) override { work_->wait(timeout); }
  bool is_completed() override { return work_->is_completed(); }
  std::exception_ptr error() const override { return work_->error(); }
  int source_rank() const override { return source_; }

 private:
  const WorkPtr work_;
  const int source_;
};

class HierarchicalBackend final : public comm::Backend {
 public:
  explicit HierarchicalBackend(Parts parts)
      : parts_(std::move(parts)),
        builder_(std::make_shared<StageBuilder>(parts_)),
        queue_(std::make_shared<StageQueue>(parts_)) {
    if (parts_.progress) parts_.progress->add(queue_);
  }

  const std::string& name() const override {
    static const std::string name = "hierarchical";
    return name;
  }

  // all_reduce sends 16-bit floats as float32, but only once for each host.
  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{.progresses_alone = false};
    return kTraits;
  }

  comm::Watchdog* watchdog() override { return parts_.flat->watchdog(); }

  std::shared_ptr<Work> start(const comm::Collective& call) override {
    if (!StageBuilder::has_stages(call)) return parts_.flat->start(call);
    auto collective = builder_->build(call);
    // The stages refer to their builder, so they keep it alive.
    collective->finish = [builder = builder_, finish = std::move(collective->finish)] {
      if (finish) finish();
    };
    return queue_->start(std::move(collective));
  }

  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, comm::MessageTag tag) override {
    if (!is_local(destination)) return parts_.flat->send(std::move(tensor), destination, tag);
    return parts_.local->send(std::move(tensor), location(destination).local_rank, tag);
  }

  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             comm::MessageTag tag) override {
    if (!source) {
      throw ConfigError(
          "recv: the hierarchical backend cannot receive from any rank; name the source, or "
          "receive "
          "in a group made by new_group(ranks, \"gloo\")");
    }
    if (!is_local(*source)) return parts_.flat->recv(std::move(tensor), source, tag);
    return std::make_shared<LocalMessage>(
        parts_.local->recv(std::move(tensor), location(*source).local_rank, tag), *source);
  }

  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    queue_->start_all_local(parts_.timeout);
    return parts_.local->allocate(shape, dtype);
  }

  void abort(const std::string& reason) override { queue_->abort(reason); }
  void check() override { queue_->check(); }

 private:
  const RankLocation& location(int rank) const {
    return parts_.locations[static_cast<std::size_t>(rank)];
  }
  bool is_local(int rank) const { return location(rank).host == location(parts_.rank).host; }

  const Parts parts_;
  const std::shared_ptr<StageBuilder> builder_;
  const std::shared_ptr<StageQueue> queue_;
};

}  // namespace

std::shared_ptr<comm::Backend> make(Parts parts) {
  return std::make_shared<HierarchicalBackend>(std::move(parts));
}

}  // namespace lockstep::hierarchical
