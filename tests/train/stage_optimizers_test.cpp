// One optimizer of those of several ranks' stages, where one of them fails.
#include <lockstep/train/strategies/stage_optimizers.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::run_group;

// An optimizer without parameters, whose state cannot be read or written on some ranks.
class BreakableOptimizer final : public RunOptimizer {
 public:
  explicit BreakableOptimizer(bool broken) : broken_(broken) {}
  void step() override {}
  void zero_grad() override {}
  Tensors gradients() override { return {}; }
  Tensors gradients_of(const Tensors&) override { return {}; }
  void clip_grad_norm(double) override {}
  void agree_through(GradScaler&) override {}
  double lr() const override { return 0; }
  void set_lr(double) override {}
  void set_momentum(double) override {}
  NamedTensors state() override {
    if (broken_) throw DataError("the state is broken");
    return {};
  }
  void load_state(const NamedTensors&) override {
    if (broken_) throw DataError("the state is broken");
  }

 private:
  const bool broken_;
};

// What each of two ranks throws where `use` calls an optimizer that is broken on rank 1.
template <class Use>
std::vector<std::string> errors_of_broken(const Use& use) {
  return run_group(2, "shm", [&](ProcessGroup group) {
    std::vector<StageOptimizer> stages;
    stages.push_back({.optimizer = std::make_unique<BreakableOptimizer>(group.rank() == 1),
                      .parameters = {}});
    const auto optimizer = make_stage_optimizers(
        std::move(stages), SgdOptions(),
        StageRanks{.pipeline = group,
                   .all = group,
                   .end_all = [group](const std::string& reason) mutable { group.abort(reason); }});
    use(*optimizer, group);
  });
}

TEST(StageOptimizerFailures, EndTheRanksThatWaitForTheState) {
  const auto errors =
      errors_of_broken([](RunOptimizer& optimizer, ProcessGroup&) { optimizer.state(); });
  EXPECT_THAT(errors, Each(HasSubstr("the state is broken")));
}

TEST(StageOptimizerFailures, EndTheRanksThatHaveLoadedTheirState) {
  const auto errors = errors_of_broken([](RunOptimizer& optimizer, ProcessGroup& group) {
    optimizer.load_state({});
    group.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the state is broken")));
}

}  // namespace
}  // namespace lockstep
