// How ranks that somebody else started come by their data.
#pragma once

#include <functional>
#include <stop_token>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep {

struct LoadRequest {
  bool may_download = true;
  std::stop_token stop;  ///< asked to stop, a download ends with an exception
};

/// Gives the data or throws what is wrong with it.
using DataSupplier = std::function<RecipeData(const LoadRequest&)>;

/// Collective. The first rank of each host calls `supplier`, on a thread of its own, and may
/// download for as long as that takes: the group's timeout does not count it. Then the others do,
/// and may not download. DataError on every rank, with the reason, when a first rank cannot load
/// (there it is the supplier's own exception), and when ranks have found different data.
RecipeData load_in_turn(const DataSupplier& supplier, ProcessGroup& group);

}  // namespace lockstep
