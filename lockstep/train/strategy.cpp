#include <lockstep/train/strategy.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/train/step_seed.h>
#include <lockstep/train/strategies/ddp_strategy.h>
#include <lockstep/train/strategies/replica_strategy.h>

namespace lockstep {
namespace {

struct StrategyEntry {
  const char* name;
  std::unique_ptr<Strategy> (*make)(ProcessGroup group);
};

std::unique_ptr<Strategy> make_single(ProcessGroup group) {
  if (group.size() > 1) {
    throw ConfigError(lockstep::str("strategy single trains in one process, but there are ",
                                    group.size(), "; use --strategy ddp"));
  }
  return std::make_unique<ReplicaStrategy>("single", std::move(group));
}

const std::vector<StrategyEntry>& strategy_entries() {
  static const std::vector<StrategyEntry> all = {
      {"single", make_single}, {"ddp", make_ddp_strategy}, {"zero1", make_zero_strategy}};
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

std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group) {
  OptionCheck("Trainer").one_of("strategy", name, strategy_names());
  for (const StrategyEntry& entry : strategy_entries()) {
    if (name == entry.name) return entry.make(std::move(group));
  }
  throw InternalError("Trainer: a strategy's name without its strategy");
}

}  // namespace lockstep
