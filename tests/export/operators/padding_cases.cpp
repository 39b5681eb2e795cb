// Constant, reflection, replication and circular padding.
#include <torch/nn/functional/padding.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

}  // namespace

void add_padding_cases(CaseList& cases) {
  const std::vector<MakeInput> line = {floats({3, 8})};
  const std::vector<MakeInput> image = {floats({3, 6, 8})};
  const std::vector<MakeInput> volume = {floats({2, 4, 5, 6})};
  cases.add(
      "constant_pad_nd", [](const Tensor& x) { return at::constant_pad_nd(x, {1, 2, 0, 1}, 3); },
      image);
  cases.add(
      "pad", [](const Tensor& x) { return at::pad(x, {1, 2, 2, 1}, "constant", 0.5); }, image);
  cases.add("pad", [](const Tensor& x) { return at::pad(x, {1, 2, 2, 1}, "reflect"); }, image);
  cases.add("pad", [](const Tensor& x) { return at::pad(x, {1, 2, 2, 1}, "replicate"); }, image);
  cases.add("pad", [](const Tensor& x) { return at::pad(x, {1, 2, 2, 1}, "circular"); }, image);
  cases.add("_pad_circular", [](const Tensor& x) { return at::_pad_circular(x, {2, 1}); }, line);
  cases.add(
      "reflection_pad1d", [](const Tensor& x) { return at::reflection_pad1d(x, {2, 1}); }, line);
  cases.add(
      "reflection_pad2d", [](const Tensor& x) { return at::reflection_pad2d(x, {2, 1, 1, 2}); },
      image);
  cases.add(
      "reflection_pad3d",
      [](const Tensor& x) { return at::reflection_pad3d(x, {1, 1, 1, 2, 0, 1}); }, volume);
  cases.add(
      "replication_pad1d", [](const Tensor& x) { return at::replication_pad1d(x, {2, 1}); }, line);
  cases.add(
      "replication_pad2d", [](const Tensor& x) { return at::replication_pad2d(x, {2, 1, 1, 2}); },
      image);
  cases.add(
      "replication_pad3d",
      [](const Tensor& x) { return at::replication_pad3d(x, {1, 1, 1, 2, 0, 1}); }, volume);
  cases.add(
      "pad", [](const Tensor& x) { return at::pad(x, {0, 2, 1, 0, 2, 1}, "circular"); }, volume);
  // Padding by a negative amount cuts.
  for (const char* const mode : {"constant", "reflect", "replicate", "circular"}) {
    cases.add("pad", [mode](const Tensor& x) { return at::pad(x, {-2, 3, 1, -1}, mode); }, image);
    cases.add("pad", [mode](const Tensor& x) { return at::pad(x, {-5, 2}, mode); }, line);
  }
  // The border repeats elements that are cut away at the other end.
  cases.add("pad", [](const Tensor& x) { return at::pad(x, {-6, 2}, "reflect"); }, line);
  // onnxruntime pads some of these in a wider type.
  for (const auto type : {torch::kShort, torch::kChar, torch::kByte, torch::kInt, torch::kBool,
                          torch::kHalf, torch::kDouble}) {
    const MakeInput row = rows_of({1, 2, 0, 5}, type);
    cases.add("constant_pad_nd", [](const Tensor& x) { return at::constant_pad_nd(x, {1, 2}, 7); },
              {row});
    cases.add("pad", [](const Tensor& x) { return at::pad(x, {2, -1}, "constant"); }, {row});
  }
  // C++'s own padding.
  const auto pad = [&cases, &image](auto mode, std::vector<std::int64_t> amounts, double value) {
    const auto options = F::PadFuncOptions(std::move(amounts)).mode(mode).value(value);
    cases.add("_pad_enum", [options](const Tensor& x) { return F::pad(x, options); }, image);
  };
  pad(torch::kConstant, {1, 2}, 0);
  pad(torch::kConstant, {1, 2, 0, 3, 1, 0}, -0.5);
  pad(torch::kReflect, {1, 2, 3, 0}, 0);
  pad(torch::kReplicate, {1, 2, 3, 0}, 0);
  pad(torch::kCircular, {1, 2, 3, 0}, 0);
  pad(torch::kReflect, {-1, 2, 3, -2}, 0);
}

}  // namespace lockstep::testing_support
