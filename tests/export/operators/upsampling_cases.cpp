// Resizing of images.
#include <torch/nn/functional/upsampling.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

}  // namespace

void add_upsampling_cases(CaseList& cases) {
  const auto factor = [](double each, std::size_t count) {
    return std::vector<double>(count, each);
  };
  const auto resize = [&cases](const char* op, auto mode, std::vector<std::int64_t> sizes,
                               std::vector<double> factors, std::optional<bool> corners) {
    auto options = F::InterpolateFuncOptions().mode(mode).scale_factor(factors);
    if (corners) options.align_corners(*corners);
    return &cases.add(op, [options](const Tensor& x) { return F::interpolate(x, options); },
                      {floats(std::move(sizes))});
  };
  resize("upsample_nearest1d", torch::kNearest, {3, 5}, factor(2, 1), {});
  resize("upsample_nearest2d", torch::kNearest, {3, 5, 4}, factor(2, 2), {});
  resize("upsample_nearest2d", torch::kNearest, {3, 5, 7}, factor(1.7, 2), {});
  resize("upsample_nearest3d", torch::kNearest, {2, 3, 4, 3}, factor(2, 3), {});
  resize("_upsample_nearest_exact1d", torch::kNearestExact, {3, 5}, factor(2, 1), {});
  resize("_upsample_nearest_exact2d", torch::kNearestExact, {3, 5, 4}, factor(3, 2), {});
  resize("_upsample_nearest_exact3d", torch::kNearestExact, {2, 3, 4, 3}, factor(2, 3), {});
  resize("upsample_linear1d", torch::kLinear, {3, 5}, factor(2, 1), false);
  resize("upsample_bilinear2d", torch::kBilinear, {3, 5, 4}, factor(2, 2), false);
  resize("upsample_bilinear2d", torch::kBilinear, {3, 5, 4}, factor(2, 2), true);
  resize("upsample_bicubic2d", torch::kBicubic, {3, 5, 4}, factor(2, 2), false);
  resize("upsample_trilinear3d", torch::kTrilinear, {2, 3, 4, 3}, factor(2, 3), false);
  cases.add("upsample_bilinear2d",
            [](const Tensor& x) { return at::upsample_bilinear2d(x, {1, 3}, false); },
            {floats({3, 5, 4})});
  cases.add("_upsample_bilinear2d_aa",
            [](const Tensor& x) { return at::_upsample_bilinear2d_aa(x, {4, 3}, false); },
            {floats({3, 8, 6})});
  cases.add("_upsample_bicubic2d_aa",
            [](const Tensor& x) { return at::_upsample_bicubic2d_aa(x, {4, 3}, false); },
            {floats({3, 8, 6})});
  // Sizes that are no multiples: 100 * 1.15 is 114, and the nearest pixel may be the one before.
  const auto resize_to = [&cases](const char* op, auto mode, std::vector<std::int64_t> sizes,
                                  std::vector<std::int64_t> to) {
    const auto options = F::InterpolateFuncOptions().mode(mode).size(std::move(to));
    cases.add(op, [options](const Tensor& x) { return F::interpolate(x, options); },
              {floats(std::move(sizes))});
  };
  resize_to("upsample_nearest1d", torch::kNearest, {2, 8}, {82});
  resize_to("upsample_nearest2d", torch::kNearest, {2, 8, 6}, {82, 74});
  resize_to("upsample_nearest2d", torch::kNearest, {2, 26, 41}, {22, 82});
  resize_to("upsample_nearest3d", torch::kNearest, {2, 2, 3, 8}, {82, 5, 82});
  resize_to("_upsample_nearest_exact1d", torch::kNearestExact, {2, 8}, {82});
  resize_to("_upsample_nearest_exact2d", torch::kNearestExact, {2, 8, 6}, {13, 5});
  resize_to("_upsample_nearest_exact3d", torch::kNearestExact, {2, 2, 3, 8}, {5, 2, 82});
  resize("upsample_nearest1d", torch::kNearest, {2, 100}, factor(1.15, 1), {});
  resize("upsample_nearest2d", torch::kNearest, {2, 100, 9}, factor(1.15, 2), {});
  resize("_upsample_nearest_exact2d", torch::kNearestExact, {2, 100, 9}, factor(0.7, 2), {});
  resize("upsample_linear1d", torch::kLinear, {2, 100}, factor(1.15, 1), false);
  resize("upsample_linear1d", torch::kLinear, {2, 100}, factor(1.15, 1), true);
  resize("upsample_bilinear2d", torch::kBilinear, {2, 100, 7}, factor(1.15, 2), false);
  resize("upsample_bilinear2d", torch::kBilinear, {2, 100, 7}, factor(1.15, 2), true);
  resize("upsample_bilinear2d", torch::kBilinear, {2, 9, 7}, {0.7, 2.3}, false);
  resize("upsample_bicubic2d", torch::kBicubic, {2, 20, 7}, {1.15, 0.6}, false);
  resize("upsample_bicubic2d", torch::kBicubic, {2, 20, 7}, {1.15, 0.6}, true);
  resize("upsample_trilinear3d", torch::kTrilinear, {2, 7, 4, 5}, {1.7, 0.6, 1.3}, false);
  resize("upsample_trilinear3d", torch::kTrilinear, {2, 7, 4, 5}, {1.7, 0.6, 1.3}, true);
  cases
      .add("upsample_bilinear2d",
           [factor](const Tensor& x) {
             return F::interpolate(x.to(torch::kDouble), F::InterpolateFuncOptions()
                                                             .mode(torch::kBilinear)
                                                             .scale_factor(factor(1.7, 2))
                                                             .align_corners(false));
           },
           {floats({2, 5, 7})})
      .tolerance = 1e-12;
  // Opset 17 has no antialiasing, but the weights are known.
  for (const double each : {0.6, 1.7}) {
    cases.add("_upsample_bilinear2d_aa",
              [each](const Tensor& x) {
                return at::_upsample_bilinear2d_aa(x, std::nullopt, false,
                                                   std::vector<double>{each, each});
              },
              {floats({2, 9, 7})});
    cases.add("_upsample_bicubic2d_aa",
              [each](const Tensor& x) {
                return at::_upsample_bicubic2d_aa(x, std::nullopt, false,
                                                  std::vector<double>{each, each});
              },
              {floats({2, 9, 7})});
  }
  // onnxruntime antialiases aligned corners differently.
  cases.add("_upsample_bilinear2d_aa",
            [](const Tensor& x) { return at::_upsample_bilinear2d_aa(x, {4, 3}, true); },
            {floats({3, 8, 6})});
  cases.add("_upsample_bicubic2d_aa",
            [](const Tensor& x) { return at::_upsample_bicubic2d_aa(x, {12, 9}, true); },
            {floats({3, 8, 6})});
  // A factor for one side only.
  cases.add(
      "upsample_bilinear2d",
      [](const Tensor& x) { return at::upsample_bilinear2d(x, {6, 6}, false, 1.3, std::nullopt); },
      {floats({3, 5, 5})});
  cases.add(
      "upsample_bilinear2d",
      [](const Tensor& x) { return at::upsample_bilinear2d(x, {6, 6}, false, std::nullopt, 1.3); },
      {floats({3, 5, 5})});
}

}  // namespace lockstep::testing_support
