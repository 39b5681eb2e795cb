// The work of one rank of `lockstep train`.
#pragma once

#include <lockstep/cli/train/load_in_turn.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// Joins the group and trains; rank 0 reports. Collective over the ranks of the run.
void train_rank(const TrainSettings& settings, const DataSupplier& data);

}  // namespace lockstep::cli
