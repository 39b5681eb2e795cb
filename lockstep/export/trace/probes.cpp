#include <lockstep/export/trace/probes.h>

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::onnx {

namespace {

// Makes the values larger than the example's, so that biases do not decide alone.
constexpr double kLarger = 4;

// Which values a proposal gives to an input.
enum class Change : std::uint8_t {
  kFree,         // anything of the example's kind
  kWithinRange,  // between the example's smallest and largest value, and one below it
  kOrder,        // the example's values in another order
};

double largest_of(const at::Tensor& values) {
  const at::Tensor sizes = values.abs().to(at::kDouble).nan_to_num(0, 0, 0);
  const double largest = sizes.numel() == 0 ? 0 : sizes.max().item<double>();
  return largest == 0 ? 1 : largest;  // the scale of zeros is that of ones
}

at::Tensor in_another_order(const at::Tensor& input, int number) {
  return input.flatten().roll(number + 1).view(input.sizes());
}

// `all`: also those that a mask needs to leave something visible.
at::Tensor other_truths(const at::Tensor& input, int number, bool all) {
  if (number == 0 && (all || input.numel() == 1)) return input.logical_not();
  const at::Tensor every_second = at::arange(number + 1, number + 1 + input.numel(), at::kLong)
                                      .remainder(2)
                                      .eq(0)
                                      .view(input.sizes());
  return input.logical_xor(every_second.to(input.device()));
}

// Smaller or larger by one, and not negative if the example is not, because the values may be
// indices. Within the range, all are the smallest or the largest value; if there is only one value,
// they become its neighbour.
at::Tensor other_whole_numbers(const at::Tensor& input, int number, Change change) {
  if (input.numel() == 0) return input;
  const at::Tensor values = input.to(at::kLong);
  const auto low = values.min().item<std::int64_t>();
  const auto high = values.max().item<std::int64_t>();
  const auto all = [&](std::int64_t value) {
    return at::full(input.sizes(), value, input.options());
  };
  if (low == 0 && high == 0) return all(1);
  // An index out of range is an exception on the CPU, but ends all work on an accelerator.
  if (change == Change::kWithinRange || !input.is_cpu()) {
    if (low == high) return (values - 1).to(input.scalar_type());
    return all(number == 0 ? low : high);
  }
  const at::Tensor others = number == 0 ? values - 1 : values + 1;
  return (low < 0 ? others : others.clamp_min(0)).to(input.scalar_type());
}

at::Tensor other_numbers(const at::Tensor& input, int number, Change change,
                         const at::Generator& generator) {
  const double largest = largest_of(input);
  if (change == Change::kWithinRange) {
    const at::Tensor finite = input.to(at::kDouble).nan_to_num(0, 0, 0);
    const double low = finite.numel() == 0 ? 0 : finite.min().item<double>();
    const double high = finite.numel() == 0 ? 0 : finite.max().item<double>();
    const at::Tensor drawn = at::empty(input.sizes(), at::kDouble).uniform_(0, 1, generator);
    const at::Tensor others = low == high ? drawn * low : drawn * (high - low) + low;
    return others.to(input.options());
  }
  if (number == 0) {
    return at::where(input == 0, at::full({}, -largest, input.options()), input * -kLarger);
  }
  const at::Tensor drawn = at::empty(input.sizes(), at::kDouble).normal_(0, 1, generator);
  return (drawn * (largest * kLarger / 2)).to(input.options());
}

}  // namespace

std::vector<Tensors> with_other_values(const Tensors& inputs, int number) {
  struct Proposal {
    Change numbers;
    Change whole_numbers;
    bool all_truths = false;
  };
  constexpr Proposal kProposals[] = {{Change::kFree, Change::kFree, /*all_truths=*/true},
                                     {Change::kFree, Change::kWithinRange},
                                     {Change::kFree, Change::kOrder},
                                     {Change::kWithinRange, Change::kWithinRange},
                                     {Change::kOrder, Change::kOrder}};
  const at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/7);
  std::vector<Tensors> proposals;
  for (const Proposal& proposal : kProposals) {
    Tensors& others = proposals.emplace_back();
    for (const at::Tensor& input : inputs) {
      const bool is_float = input.is_floating_point();
      const Change change = is_float ? proposal.numbers : proposal.whole_numbers;
      if (change == Change::kOrder) {
        others.push_back(in_another_order(input, number));
      } else if (is_float) {
        others.push_back(other_numbers(input, number, change, generator));
      } else if (input.scalar_type() == at::kBool) {
        others.push_back(other_truths(input, number, proposal.all_truths));
      } else {
        others.push_back(other_whole_numbers(input, number, change));
      }
    }
  }
  return proposals;
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
