#include <lockstep/program/aliases.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace lockstep::program {
namespace {

// Composite operators that compute new tensors in all cases. What is missing here is treated as if
// it returned an input, which is only less exact.
constexpr std::string_view kComputesAnew[] = {"aten::adaptive_avg_pool2d",
                                              "aten::batch_norm",
                                              "aten::conv1d",
                                              "aten::conv2d",
                                              "aten::conv3d",
                                              "aten::conv_transpose1d",
                                              "aten::conv_transpose2d",
                                              "aten::conv_transpose3d",
                                              "aten::cross_entropy_loss",
                                              "aten::group_norm",
                                              "aten::instance_norm",
                                              "aten::layer_norm",
                                              "aten::linear",
                                              "aten::log_softmax",
                                              "aten::matmul",
                                              "aten::max_pool1d",
                                              "aten::max_pool2d",
                                              "aten::max_pool3d",
                                              "aten::rms_norm",
                                              "aten::scaled_dot_product_attention",
                                              "aten::softmax"};

// Operators that are not composite and return a view although their schemas do not say so.
constexpr std::string_view kReturnsView[] = {"aten::_unsafe_view", "aten::dequantize", "aten::lift",
                                             "aten::unsafe_split", "aten::unsafe_split_with_sizes"};

}  // namespace

bool may_return_input(const c10::OperatorHandle& operation) {
  const auto is_in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), operation.schema().name()) !=
           std::end(names);
  };
  if (is_in(kReturnsView)) return true;
  return operation.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !is_in(kComputesAnew);
}

const std::string& AliasSets::root(const std::string& name) {
  const auto first = parents_.try_emplace(name, name).first;
  auto found = first;
  while (found->second != found->first) found = parents_.find(found->second);
  first->second = found->first;
  return found->first;
}

void AliasSets::unite(const std::string& a, const std::string& b) {
  const std::string root_b = root(b);
  parents_[root(a)] = root_b;
}

}  // namespace lockstep::program
