// Constant, reflection, replication and circular padding.
#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

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
}

}  // namespace lockstep::testing_support
