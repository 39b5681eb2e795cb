// Pooling over windows of fixed and adaptive size.
#include <limits>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_pooling_cases(CaseList& cases) {
  cases.add("max_pool1d", [](const Tensor& x) { return at::max_pool1d(x, 3, 2, 1); },
            {floats({3, 9})});
  cases.add("max_pool2d", [](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1, 1, true); },
            {floats({3, 8, 10})});
  // The last window would begin beyond the image, and is left out.
  cases.add("max_pool2d", [](const Tensor& x) { return at::max_pool2d(x, 2, 3, 1, 1, true); },
            {floats({3, 5, 6})});
  // The last window extends farther beyond the image than the kernel is wide.
  cases.add("max_pool2d", [](const Tensor& x) { return at::max_pool2d(x, 2, 4, 0, 4, true); },
            {floats({3, 6, 10})});
  cases.add("max_pool3d", [](const Tensor& x) { return at::max_pool3d(x, 2); },
            {floats({2, 4, 6, 4})});
  cases.add("max_pool1d_with_indices",
            [](const Tensor& x) { return at::max_pool1d_with_indices(x, 2); }, {floats({3, 8})});
  cases.add("max_pool2d_with_indices",
            [](const Tensor& x) { return at::max_pool2d_with_indices(x, 2); }, {floats({3, 8, 6})});
  cases.add("max_pool2d_with_indices",
            [](const Tensor& x) { return at::max_pool2d_with_indices(x, 3, 2, 1, 1, true); },
            {floats({3, 8, 10})});
  cases.add("max_pool3d_with_indices",
            [](const Tensor& x) { return at::max_pool3d_with_indices(x, 2); },
            {floats({2, 4, 4, 6})});
  cases.add("avg_pool1d", [](const Tensor& x) { return at::avg_pool1d(x, 3, 2, 1); },
            {floats({3, 9})});
  cases.add("avg_pool2d", [](const Tensor& x) { return at::avg_pool2d(x, 3, 2, 1, false, false); },
            {floats({3, 8, 10})});
  cases.add("avg_pool2d",
            [](const Tensor& x) { return at::avg_pool2d(x, 2, 2, 0, false, true, 3); },
            {floats({3, 8, 10})});
  cases.add("avg_pool2d",
            [](const Tensor& x) { return at::avg_pool2d(x, 3, 2, 1, false, false, 4); },
            {floats({3, 8, 10})});
  cases.add("avg_pool2d", [](const Tensor& x) { return at::avg_pool2d(x, 2, 3, 0, true); },
            {floats({3, 6, 8})});
  cases.add("avg_pool2d", [](const Tensor& x) { return at::avg_pool2d(x, 3, 2, 0, true, false); },
            {floats({3, 8, 7})});
  cases.add("avg_pool3d", [](const Tensor& x) { return at::avg_pool3d(x, 2); },
            {floats({2, 4, 6, 4})});
  cases.add("adaptive_avg_pool1d", [](const Tensor& x) { return at::adaptive_avg_pool1d(x, 4); },
            {floats({3, 8})});
  cases.add("adaptive_avg_pool2d",
            [](const Tensor& x) { return at::adaptive_avg_pool2d(x, {1, 1}); },
            {floats({3, 8, 6})});
  cases.add("adaptive_avg_pool2d",
            [](const Tensor& x) { return at::adaptive_avg_pool2d(x, {3, 5}); },
            {floats({3, 7, 11})});
  cases.add("adaptive_avg_pool3d",
            [](const Tensor& x) { return at::adaptive_avg_pool3d(x, {2, 2, 3}); },
            {floats({2, 4, 5, 6})});
  const auto values = [](const std::tuple<Tensor, Tensor>& both) { return std::get<0>(both); };
  cases.add("adaptive_max_pool1d",
            [values](const Tensor& x) { return values(at::adaptive_max_pool1d(x, 3)); },
            {floats({3, 8})});
  cases.add("adaptive_max_pool2d",
            [values](const Tensor& x) { return values(at::adaptive_max_pool2d(x, {2, 5})); },
            {floats({3, 8, 7})});
  cases.add("adaptive_max_pool3d",
            [values](const Tensor& x) { return values(at::adaptive_max_pool3d(x, {2, 2, 2})); },
            {floats({2, 4, 4, 6})});
  // Windows without a finite number: float32's kernels in onnxruntime begin with the lowest one.
  const auto hidden = [](const Tensor& x) {
    return x.masked_fill(x < 0.7, -std::numeric_limits<double>::infinity());
  };
  cases.add("max_pool2d", [hidden](const Tensor& x) { return at::max_pool2d(hidden(x), 3, 2, 1); },
            {floats({2, 8, 10})});
  cases.add("max_pool2d",
            [hidden](const Tensor& x) { return at::max_pool2d(hidden(x), 3, 2, 1).relu(); },
            {floats({2, 8, 10})});
  cases.add("max_pool1d", [hidden](const Tensor& x) { return at::max_pool1d(hidden(x), 2); },
            {floats({2, 10})});
  cases.add("max_pool2d",
            [hidden](const Tensor& x) {
              const Tensor pooled = at::max_pool2d(hidden(x), 3, 2, 1);
              return std::vector<Tensor>{pooled.relu(), pooled};
            },
            {floats({2, 8, 10})});
  // Without a batch dimension.
  const std::vector<MakeInput> image = {floats({3, 8, 7})};
  cases.add(
      "max_pool2d", [](const Tensor& x) { return at::max_pool2d(x[0], 3, 2, 1, 1, true); }, image);
  cases.add("avg_pool2d", [](const Tensor& x) { return at::avg_pool2d(x[0], 3, 2, 1); }, image);
  cases.add(
      "adaptive_avg_pool2d", [](const Tensor& x) { return at::adaptive_avg_pool2d(x[0], {4, 3}); },
      image);
  cases.add(
      "adaptive_max_pool2d",
      [values](const Tensor& x) { return values(at::adaptive_max_pool2d(x[0], {1, 1})); }, image);
  for (const std::int64_t size : {1, 3, 4}) {  // over all, of equal size, of different sizes
    cases.add("adaptive_max_pool1d",
              [=](const Tensor& x) { return values(at::adaptive_max_pool1d(hidden(x - 1), size)); },
              {floats({2, 6})});
  }
  // Each side differs from the other. The last window of one side needs padding of its own.
  cases.add("max_pool2d",
            [](const Tensor& x) {
              return at::max_pool2d(x, {3, 2}, {2, 3}, {1, 0}, {1, 2}, /*ceil_mode=*/true);
            },
            {floats({2, 8, 10})});
  for (const bool count_padding : {false, true}) {
    cases.add("avg_pool2d",
              [count_padding](const Tensor& x) {
                return at::avg_pool2d(x, {3, 2}, {2, 1}, {1, 0}, false, count_padding);
              },
              {floats({2, 8, 7})});
  }
  cases.add("avg_pool3d",
            [](const Tensor& x) {
              return at::avg_pool3d(x, {1, 2, 3}, {2, 1, 2}, {0, 1, 1}, false, true, 5);
            },
            {floats({2, 4, 6, 5})});
}

}  // namespace lockstep::testing_support
