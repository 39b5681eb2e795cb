// Programs whose images lie in memory as NHWC, the memory format channels_last.
//
// LibTorch's operators keep the format of their arguments, so that a program computes in it if its
// images and the weights of its convolutions have it. What must change in the graph are calls of
// view(), which needs a layout that an image in channels_last does not have; reshape() returns the
// same values, in new memory if it must.
#pragma once

#include <string_view>
#include <vector>

#include <torch/types.h>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// Lets the graph compute in channels_last, and returns for each of its inputs whether the caller
/// must give it the format. These inputs are the parameters and the arguments of forward() that
/// are floating-point tensors of four dimensions and that the graph does not change in place. A
/// tensor that another stage passes on stays as that stage has made it: it may be no image.
///
/// A call of view() stays if the graph changes the view or its base in place later, because a copy
/// would not see the change. LibTorch refuses such a call when the memory has the order of
/// channels_last. Throws a ConfigError that begins with `file` if an operator reads or sets
/// strides.
std::vector<bool> to_channels_last(ExportedGraph& program, std::string_view file);

/// Gives `tensor`, of four dimensions, the strides of channels_last, in place.
void give_channels_last(torch::Tensor& tensor);

}  // namespace lockstep::program
