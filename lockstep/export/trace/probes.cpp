#include <lockstep/export/trace/probes.h>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::onnx {

namespace {

// Makes the values larger than the example's, so that biases do not decide alone.
constexpr double kLarger = 4;

}  // namespace

Tensors with_other_values(const Tensors& inputs, int number) {
  const at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/7);
  Tensors others;
  for (const at::Tensor& input : inputs) {
    if (!input.is_floating_point()) {
      others.push_back(input.flatten().roll(number + 1).view(input.sizes()));
    } else if (number == 0) {
      others.push_back(input * -kLarger);
    } else {
      const at::Tensor drawn = at::empty(input.sizes(), at::kDouble).normal_(0, 1, generator);
      const double scale = input.numel() == 0 ? 1 : input.abs().max().item<double>() * kLarger / 2;
      others.push_back((drawn * scale).to(input.options()));
    }
  }
  return others;
}

Tensors with_batch(const Tensors& inputs, const std::vector<std::int64_t>& batch_dimensions,
                   std::int64_t batch) {
  Tensors others;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t dimension = batch_dimensions[i];
    if (dimension < 0) {
      others.push_back(inputs[i]);
      continue;
    }
    const at::Tensor rows =
        at::arange(batch, at::kLong).remainder(inputs[i].size(dimension)).to(inputs[i].device());
    others.push_back(inputs[i].index_select(dimension, rows));
  }
  return others;
}

}  // namespace lockstep::onnx
