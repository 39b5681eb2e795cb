// The data of `lockstep train`, as its options want it.
#pragma once

#include <lockstep/cli/train/load_in_turn.h>
#include <lockstep/cli/train/train_settings.h>

namespace lockstep {

/// Loads the data of the recipe. Where this process speaks for the run (TrainSettings::speaks()),
/// downloads have a bar, and notes go to standard error, unless the run is quiet. Throws what
/// Recipe::load_data throws, and DataError for a download that `request` gives up.
RecipeData load_recipe_data(const TrainSettings& settings, const LoadRequest& request);

}  // namespace lockstep
