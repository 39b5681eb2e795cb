// Tensors that occur several times in a list, each once.
#pragma once

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// Each of `tensors` once, where it occurs first. C++'s Module::parameters() lists a tied weight
/// once for each of its names; what changes a list of tensors in place must change it once.
Tensors distinct(const Tensors& tensors);

/// As above, under the first of its names.
NamedTensors distinct(const NamedTensors& tensors);

}  // namespace lockstep
