#include <lockstep/train/strategies/ddp_strategy.h>

#include <optional>
#include <string>
#include <utility>

#include <lockstep/train/strategies/replica_strategy.h>

namespace lockstep {
namespace {

class DdpStrategy : public ReplicaStrategy {
 public:
  DdpStrategy(const char* name, ProcessGroup group, ParameterMemory memory, bool sync_batchnorm)
      : ReplicaStrategy(name, std::move(group)), memory_(memory), sync_batchnorm_(sync_batchnorm) {}

  std::string batch_parts() const override {
    return sync_batchnorm_ ? "normalised over the ranks" : ReplicaStrategy::batch_parts();
  }

 protected:
  void wrap(torch::nn::Module& module) override {
    core_.emplace(
        module, group(),
        DdpOptions{.sync_batch_norm = sync_batchnorm_, .parameter_memory = memory_});
  }
  DdpCore* core() override { return core_ ? &*core_ : nullptr; }

 private:
  const ParameterMemory memory_;
  const bool sync_batchnorm_;
  std::optional<DdpCore> core_;
};

class ZeroStrategy final : public DdpStrategy {
 public:
  using DdpStrategy::DdpStrategy;
  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerOptions& options) override {
    return make_sharded_optimizer(*core(), module(), options);
  }
  bool module_has_gradients() const override { return false; }  // each rank has its share
};

}  // namespace

// Flat, because an optimizer over a few large tensors is faster than one over many
// (docs/benchmarks/ddp.md).
std::unique_ptr<Strategy> make_ddp_strategy(ProcessGroup group, const StrategyOptions& options) {
  return std::make_unique<DdpStrategy>("ddp", std::move(group), ParameterMemory::kFlat,
                                       options.sync_batchnorm);
}

std::unique_ptr<Strategy> make_zero_strategy(ProcessGroup group, const StrategyOptions& options) {
  const bool shares = group.backend() == "shm";
  return std::make_unique<ZeroStrategy>("zero1", std::move(group),
                                        shares ? ParameterMemory::kShared : ParameterMemory::kFlat,
                                        options.sync_batchnorm);
}

}  // namespace lockstep
