// What one rank of `lockstep train` does.
#pragma once

#include <functional>
#include <optional>

#include <lockstep/cli/train_settings.h>

namespace lockstep {

/// Gives the data; called once, by one rank of a host after the other where it may download.
using DataSupplier = std::function<RecipeData()>;

/// Joins the group, trains, reports on rank 0. Collective over the ranks of the run.
void train_rank(const TrainSettings& settings, const DataSupplier& data);

}  // namespace lockstep
