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

/// Lets the graph compute in channels_last. Returns for each of its inputs whether it can get the
/// format: floating-point tensors of four dimensions, among the parameters and the arguments of
/// forward(), which the graph does not change. A view that is changed in place, or whose base is,
/// stays a view, which LibTorch refuses if the memory has another order.
/// Throws a ConfigError that begins with `file` if an operator reads or sets strides.
std::vector<bool> to_channels_last(ExportedGraph& program, std::string_view file);

/// Gives `tensor`, of four dimensions, the strides of channels_last, in place.
void give_channels_last(torch::Tensor& tensor);

}  // namespace lockstep::program
