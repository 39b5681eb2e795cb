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
  cases
      .add("_upsample_bilinear2d_aa",
           [](const Tensor& x) { return at::_upsample_bilinear2d_aa(x, {4, 3}, false); },
           {floats({3, 8, 6})})
      .first_opset = 18;
  cases
      .add("_upsample_bicubic2d_aa",
           [](const Tensor& x) { return at::_upsample_bicubic2d_aa(x, {4, 3}, false); },
           {floats({3, 8, 6})})
      .first_opset = 18;
}

}  // namespace lockstep::testing_support
