// An option that would change what is computed is refused where a strategy has it not.
#pragma once

#include <string>

#include <lockstep/core/error.h>
#include <lockstep/train/strategy.h>

namespace lockstep {

/// ConfigError for sync_batchnorm, which only ddp and zero1 have.
inline void refuse_sync_batchnorm(const std::string& strategy, const StrategyOptions& options) {
  if (!options.sync_batchnorm) return;
  throw ConfigError("strategy " + strategy + ": sync_batchnorm belongs to ddp and zero1");
}

}  // namespace lockstep
