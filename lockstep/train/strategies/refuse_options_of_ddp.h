// Refuses options that only ddp and zero1 support: other strategies would silently ignore them.
#pragma once

#include <string>

#include <lockstep/core/error.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Throws ConfigError if sync_batchnorm, static_graph or bucket_cap_mb is set, or
/// find_unused_parameters for strategies other than hybrid.
inline void refuse_options_of_ddp(const std::string& strategy, const StrategyOptions& options) {
  const char* const given = options.sync_batchnorm  ? "sync_batchnorm"
                            : options.static_graph  ? "static_graph"
                            : options.bucket_cap_mb ? "bucket_cap_mb"
                                                    : nullptr;
  if (given != nullptr) {
    throw ConfigError("strategy " + strategy + ": " + given + " belongs to ddp and zero1");
  }
  if (!options.find_unused_parameters || strategy == "hybrid") return;
  throw ConfigError("strategy " + strategy +
                    ": find_unused_parameters belongs to ddp, zero1 and hybrid; without it, this "
                    "strategy does not step parameters that have no gradient");
}

}  // namespace lockstep::train
