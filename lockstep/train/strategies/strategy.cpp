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

struct StrategyEntry {
  const char* name;
  std::unique_ptr<Strategy> (*make)(ProcessGroup group, const StrategyOptions& options);
};

std::unique_ptr<Strategy> make_single(ProcessGroup group, const StrategyOptions&) {
  if (group.size() > 1) {
    throw ConfigError(lockstep::str("strategy single trains in one process, but there are ",
                                    group.size(), "; use strategy ddp"));
  }
  return std::make_unique<train::ReplicaStrategy>("single", std::move(group));
}

const std::vector<StrategyEntry>& strategy_entries() {
  static const std::vector<StrategyEntry> all = {{"single", make_single},
                                                 {"dp", train::make_data_parallel_strategy},
                                                 {"ddp", train::make_ddp_strategy},
                                                 {"zero1", train::make_zero_strategy},
                                                 {"pipeline", train::make_pipeline_strategy},
                                                 {"hybrid", train::make_hybrid_strategy}};
  return all;
}

}  // namespace

void Strategy::seed(std::uint64_t seed, torch::Device device) { seed_generators(seed, device); }

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const StrategyEntry& entry : strategy_entries()) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

std::string to_string(DpLoss loss) { return loss == DpLoss::kGathered ? "gathered" : "on-each"; }

DpLoss parse_dp_loss(const std::string& name) {
  OptionCheck("strategy dp").one_of("dp_loss", name, {"gathered", "on-each"});
  return name == "gathered" ? DpLoss::kGathered : DpLoss::kOnEach;
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group,
                                        const StrategyOptions& options) {
  OptionCheck("Trainer").one_of("strategy", name, strategy_names());
  for (const StrategyEntry& entry : strategy_entries()) {
    if (name == entry.name) return entry.make(std::move(group), options);
  }
  throw InternalError("Trainer: a strategy's name without its strategy");
}

}  // namespace lockstep
