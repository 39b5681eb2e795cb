// Removes duplicates from lists of tensors.
#pragma once

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep::optim {

/// Each of `tensors` once, at its first occurrence. C++'s Module::parameters() lists a tied weight
/// once for each of its names, but an in-place change of a list of tensors must change it only
/// once.
Tensors distinct(const Tensors& tensors);

/// As above, with the first of its names.
NamedTensors distinct(const NamedTensors& tensors);

}  // namespace lockstep::optim
