// The names of Python that a pickle may use, and what a call of them gives.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/formats/torch_file/pickle_node.h>

namespace lockstep::torch_file {

/// Whether a pickle may name `name`, which is "MODULE.NAME" under Python 3's names of modules.
bool is_known_name(std::string_view name);

/// The value of `function(*arguments)`. Fails at `place` when `function` is a name that stands for
/// no function, or the arguments are not those that Python passes.
PickleNodeRef pickled_call(const std::string& function, const PickleNode& arguments,
                           const PicklePlace& place);

/// The storage that the persistent id `id` of torch.save refers to.
PickleNodeRef pickled_storage(const PickleNode& id, const PicklePlace& place);

}  // namespace lockstep::torch_file
