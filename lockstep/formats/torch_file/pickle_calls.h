// The Python names that a pickle may use, and the results of calling them.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/formats/torch_file/pickle_node.h>

namespace lockstep::torch_file {

/// Whether a pickle may use `name`, which is "MODULE.NAME" with Python 3's module names.
bool is_known_name(std::string_view name);

/// The value of `function(*arguments)`. Fails at `place` if `function` is not the name of a
/// function, or the arguments are not those that Python passes.
PickleNodeRef pickled_call(const std::string& function, const PickleNode& arguments,
                           const PicklePlace& place);

/// The storage that the persistent id `id` of torch.save refers to.
PickleNodeRef pickled_storage(const PickleNode& id, const PicklePlace& place);

}  // namespace lockstep::torch_file
