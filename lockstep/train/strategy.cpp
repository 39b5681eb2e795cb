#include <lockstep/train/strategy.h>

#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/distributed_data_parallel.h>

namespace lockstep {
namespace {

class SingleStrategy : public Strategy {
 public:
  explicit SingleStrategy(ProcessGroup group) : group_(std::move(group)) {
    if (group_.size() > 1) {
      throw ConfigError(lockstep::str("strategy single trains in one process, but there are ",
                                      group_.size(), "; use --strategy ddp"));
    }
  }
  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  void attach(torch::nn::Module&) override {}
  std::unique_ptr<RunOptimizer> make_optimizer(const torch::nn::Module& module,
                                               const OptimizerOptions& options) override {
    return make_replicated_optimizer(module, options, group_);
  }
  void before_forward() override {}
  double communication_seconds() const override { return 0; }

 private:
  const std::string name_ = "single";
  ProcessGroup group_;
};

class DdpStrategy : public Strategy {
 public:
  explicit DdpStrategy(ProcessGroup group) : group_(std::move(group)) {}
  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  // Flat, because an optimizer over a few large tensors is faster than one over many (docs/benchmarks/ddp.md).
  void attach(torch::nn::Module& module) override {
    ddp_.emplace(module, group_, DdpOptions{.parameter_memory = ParameterMemory::kFlat});
  }
  std::unique_ptr<RunOptimizer> make_optimizer(const torch::nn::Module& module,
                                               const OptimizerOptions& options) override {
    return make_replicated_optimizer(module, options, group_);
  }
  void before_forward() override { ddp_->before_forward(); }
  double communication_seconds() const override { return ddp_->communication_seconds(); }

 private:
  const std::string name_ = "ddp";
  ProcessGroup group_;
  std::optional<DdpCore> ddp_;
};

class ZeroStrategy : public Strategy {
 public:
  explicit ZeroStrategy(ProcessGroup group) : group_(std::move(group)) {}
  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  void attach(torch::nn::Module& module) override {
    const bool shares = group_.backend() == "shm";
    ddp_.emplace(
        module, group_,
        DdpOptions{.parameter_memory = shares ? ParameterMemory::kShared : ParameterMemory::kFlat});
  }
  std::unique_ptr<RunOptimizer> make_optimizer(const torch::nn::Module& module,
                                               const OptimizerOptions& options) override {
    return make_sharded_optimizer(*ddp_, module, options);
  }
  void before_forward() override { ddp_->before_forward(); }
  double communication_seconds() const override { return ddp_->communication_seconds(); }

 private:
  const std::string name_ = "zero1";
  ProcessGroup group_;
  std::optional<DdpCore> ddp_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group) {
  OptionCheck("Trainer").one_of("strategy", name, {"single", "ddp", "zero1"});
  if (name == "single") return std::make_unique<SingleStrategy>(std::move(group));
  if (name == "zero1") return std::make_unique<ZeroStrategy>(std::move(group));
  return std::make_unique<DdpStrategy>(std::move(group));
}

}  // namespace lockstep
