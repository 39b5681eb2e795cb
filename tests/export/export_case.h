// A module, or a function of tensors, to be exported and compared in onnxruntime.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/export/onnx_export.h>

namespace lockstep::testing_support {

using Tensors = std::vector<torch::Tensor>;

/// Makes an input for a batch of the given size.
using MakeInput = std::function<torch::Tensor(std::int64_t batch)>;

struct ExportCase {
  std::string name{};  ///< base name of the files
  std::string op{};    ///< operator or module that the case covers; empty for a whole net
  std::shared_ptr<torch::nn::Module> module{};
  OnnxForward forward{};
  std::vector<MakeInput> inputs{};
  OnnxExportOptions options{};
  std::optional<std::string> module_options{};  ///< for a module of torch::nn
  int first_opset = 17;
  std::int64_t example_batch = 2;  ///< batch size of the inputs given to the export
  /// The largest allowed difference of an element, relative to the element.
  double tolerance = 1e-5;
  /// Adds terms that may cancel out, so that an element may be far smaller than its terms: then
  /// differences are relative to the largest element.
  bool adds_terms = false;
  /// Elements smaller than this are allowed the difference of an element of this size.
  double negligible = 0;
  /// Compares the signs of zeros, too.
  bool signed_zeros = false;

  Tensors make_inputs(std::int64_t batch) const {
    Tensors made;
    for (const MakeInput& make : inputs) made.push_back(make(batch));
    return made;
  }
};

/// At least one case for each operator in the table of lowerings.
std::vector<ExportCase> operator_cases();

/// Every module of torch::nn with its options, including those that cannot be exported.
std::vector<ExportCase> module_cases();

/// Whole networks.
std::vector<ExportCase> net_cases();

/// A network of 4.4 GB, whose last parameters lie beyond 32-bit offsets.
std::vector<ExportCase> large_cases();

inline std::vector<std::int64_t> with_batch(std::int64_t batch, std::vector<std::int64_t> sizes) {
  sizes.insert(sizes.begin(), batch);
  return sizes;
}

/// Normally distributed floats of shape [batch, sizes...].
inline MakeInput floats(std::vector<std::int64_t> sizes) {
  return [sizes](std::int64_t batch) { return torch::randn(with_batch(batch, sizes)); };
}
/// Uniformly distributed floats between `low` and `high`.
inline MakeInput between(double low, double high, std::vector<std::int64_t> sizes) {
  return [=](std::int64_t batch) {
    return torch::rand(with_batch(batch, sizes)) * (high - low) + low;
  };
}
/// Integers from `low` to `high` - 1.
inline MakeInput integers(std::int64_t low, std::int64_t high, std::vector<std::int64_t> sizes) {
  return [=](std::int64_t batch) {
    return torch::randint(low, high, with_batch(batch, sizes), torch::kLong);
  };
}
/// The given numbers in each row of a batch.
inline MakeInput rows_of(std::vector<double> numbers, torch::ScalarType type = torch::kFloat) {
  return [=](std::int64_t batch) {
    const torch::Tensor row = torch::tensor(numbers, torch::kDouble).to(type);
    return row.expand({batch, row.size(0)}).contiguous();
  };
}
inline MakeInput truths(std::vector<std::int64_t> sizes) {
  return [sizes](std::int64_t batch) { return torch::rand(with_batch(batch, sizes)) > 0.5; };
}

/// A case for a module holder whose forward() takes one tensor.
template <class ModuleHolder>
ExportCase case_of(std::string name, std::string op, ModuleHolder net, MakeInput input) {
  return {.name = std::move(name),
          .op = std::move(op),
          .module = net.ptr(),
          .forward =
              [net](const Tensors& x) mutable {
                Tensors outputs;
                detail::append_outputs(net->forward(x[0]), outputs);
                return outputs;
              },
          .inputs = {std::move(input)}};
}

}  // namespace lockstep::testing_support
