// Lists of tensors in the form that kernels for lists need: each tensor once, without lazy marks.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep::optim {

/// Each of `tensors` once, at its first occurrence. C++'s Module::parameters() lists a tied weight
/// once for each of its names, but an in-place change of a list of tensors must change it only
/// once.
Tensors distinct(const Tensors& tensors);

/// As above, with the first of its names.
NamedTensors distinct(const NamedTensors& tensors);

/// The names of two of `tensors` that share memory, if there are any. `tensors` must not contain a
/// tensor twice. Those that leave holes in their memory are not compared.
std::optional<std::pair<std::string, std::string>> first_overlap(const NamedTensors& tensors);

/// The memory of `tensor`, without the mark of a lazy conjugate or negative, which LibTorch's
/// kernels for lists refuse. Its elements have the same magnitudes, so it has the same norm, and
/// `tensor` can be scaled by a real number, or clamped to [-c, c], through it.
torch::Tensor without_lazy_marks(const torch::Tensor& tensor);

}  // namespace lockstep::optim
