#include <lockstep/train/strategies/strategy.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/strategies/data_parallel_strategy.h>
#include <lockstep/train/strategies/ddp_strategy.h>
#include <lockstep/train/strategies/pipeline_strategies.h>
#include <lockstep/train/strategies/replica_strategy.h>

namespace lockstep {
namespace {

using MakeStrategy = std::unique_ptr<Strategy> (*)(ProcessGroup group,
                                                   const StrategyOptions& options);

std::unique_ptr<Strategy> make_single(ProcessGroup group, const StrategyOptions&) {
  if (group.size() > 1) {
    throw ConfigError(lockstep::str("strategy single trains in one process, but there are ",
                                    group.size(), "; use strategy ddp"));
  }
  return std::make_unique<train::ReplicaStrategy>("single", std::move(group));
}

const detail::NamedValues<MakeStrategy>& named_strategies() {
  static const detail::NamedValues<MakeStrategy> all = {{"single", make_single},
                                                        {"dp", train::make_data_parallel_strategy},
                                                        {"ddp", train::make_ddp_strategy},
                                                        {"zero1", train::make_zero_strategy},
                                                        {"pipeline", train::make_pipeline_strategy},
                                                        {"hybrid", train::make_hybrid_strategy}};
  return all;
}

const detail::NamedValues<DpLoss>& named_dp_losses() {
  static const detail::NamedValues<DpLoss> all = {{"gathered", DpLoss::kGathered},
                                                  {"on-each", DpLoss::kOnEach}};
  return all;
}

}  // namespace

std::unique_ptr<RunOptimizer> Strategy::make_own_optimizer(const NamedTensors&,
                                                           const MakeOwnOptimizer&) {
  throw ConfigError(lockstep::str("strategy ", name(),
                                  ": an optimizer of the program's own (configure_optimizers()) "
                                  "holds whole parameters; use strategy single or ddp, or one of "
                                  "Lockstep's optimizers"));
}

void Strategy::seed(std::uint64_t seed, torch::Device device) { seed_generators(seed, device); }

const std::vector<std::string>& strategy_names() { return named_strategies().names(); }

const std::vector<std::string>& dp_loss_names() { return named_dp_losses().names(); }

std::string to_string(DpLoss loss) { return named_dp_losses().name_of(loss); }

DpLoss parse_dp_loss(const std::string& name) {
  return named_dp_losses().value_of("strategy dp", "dp_loss", name);
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group,
                                        const StrategyOptions& options) {
  return named_strategies().value_of("Trainer", "strategy", name)(std::move(group), options);
}

}  // namespace lockstep
