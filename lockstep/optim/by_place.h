// Divides a list of tensors among calls of kernels that take tensors of one device and type.
#pragma once

#include <vector>

#include <lockstep/optim/update_rule.h>

namespace lockstep::optim {

/// The tensors by device and dtype. The lists, and the tensors in each, are in the order of their
/// first occurrence.
std::vector<Tensors> by_place(const Tensors& tensors);

}  // namespace lockstep::optim
