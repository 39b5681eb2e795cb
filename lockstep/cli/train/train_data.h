// Loads the data that the options of `lockstep train` request.
#pragma once

#include <lockstep/cli/train/load_in_turn.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// Loads the recipe's data. In the process that speaks for the run (TrainSettings::speaks()),
/// downloads show a bar and notes go to standard error, unless the run is quiet. Throws the errors
/// of Recipe::load_data, and DataError if `request` stops a download.
recipes::RecipeData load_recipe_data(const TrainSettings& settings, const LoadRequest& request);

}  // namespace lockstep::cli
