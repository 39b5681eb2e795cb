// Loads the data on ranks that another launcher started.
#pragma once

#include <functional>
#include <stop_token>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::cli {

struct LoadRequest {
  bool may_download = true;
  std::stop_token stop;  ///< when stop is requested, a download ends with an exception
};

/// Returns the data or throws an error.
using DataSupplier = std::function<recipes::RecipeData(const LoadRequest&)>;

/// Collective. The first rank of each host calls `supplier`, on a thread of its own, and may
/// download for any length of time: the group's timeout does not apply. Then the other ranks call
/// it without being allowed to download. If a first rank cannot load, it throws the supplier's
/// exception and every other rank throws DataError with the reason. All ranks throw DataError if
/// they found different data.
recipes::RecipeData load_in_turn(const DataSupplier& supplier, ProcessGroup& group);

}  // namespace lockstep::cli
