// Resizing of images.
#include <cmath>
#include <numeric>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// The differences between the modes of Resize.
struct ResizeMode {
  const char* mode;
  const char* coordinates;
  const char* nearest = "floor";
  bool antialias = false;
};

// The factors that the caller gave, if any: LibTorch uses them for coordinates if they do not lead
// to whole sizes. upsample_bilinear2d(x, size, align_corners, [factors]) takes a list of them, or
// one argument for each dimension.
std::vector<double> given_factors(const RecordedOperation& op, std::size_t i, std::size_t spatial) {
  std::vector<double> factors;
  if (op.is_list(i)) return op.numbers(i);
  for (std::size_t d = 0; d < spatial && op.has(i + d); ++d) factors.push_back(op.number(i + d));
  return factors.size() == spatial ? factors : std::vector<double>{};
}

void emit_resize(RecordedOperation& op, const ResizeMode& mode, std::size_t factors_at) {
  const Extents& sizes = op.sizes(0);
  const Extents& result = op.result_sizes();
  const std::size_t spatial = sizes.size() - 2;
  const auto factors = given_factors(op, factors_at, spatial);
  std::vector<float> scales = {1, 1};
  bool exact = true;  // the factors equal the ratios of the sizes
  for (std::size_t d = 0; d < spatial; ++d) {
    const auto from = static_cast<double>(op.fixed(sizes[d + 2], "an image's size"));
    const auto to = static_cast<double>(op.fixed(result[d + 2], "an image's size"));
    scales.push_back(static_cast<float>(factors.empty() ? to / from : factors[d]));
    exact = exact && (factors.empty() || from * factors[d] == to);
  }
  Attributes attributes = {{"mode", mode.mode},
                           {"coordinate_transformation_mode", mode.coordinates},
                           {"nearest_mode", mode.nearest},
                           {"cubic_coeff_a", mode.antialias ? -0.5 : -0.75}};
  if (mode.antialias) {
    if (op.opset() < 18) op.reject("antialias needs opset 18 or newer");
    attributes.emplace_back("antialias", 1);
    attributes.emplace_back("exclude_outside", 1);  // weights beyond the border are ignored
  }
  if (exact) {
    // Sizes are exact, whereas a float32 factor could round a size down.
    return op.result("Resize", {op.tensor(0), "", "", op.graph().sizes(result)}, attributes);
  }
  const std::string factor =
      op.graph().constant(at::tensor(scales, at::kFloat), "", /*keep_float=*/true);
  op.result("Resize", {op.tensor(0), "", factor}, attributes);
}

void lower_nearest(RecordedOperation& op, const Operator&) {
  emit_resize(op, {"nearest", "asymmetric"}, 2);
}

void lower_nearest_exact(RecordedOperation& op, const Operator&) {
  emit_resize(op, {"nearest", "half_pixel", "round_prefer_ceil"}, 2);
}

// ONNX's pytorch_half_pixel uses coordinate 0 if a side of the result is 1, like early versions of
// PyTorch's interpolate(); current versions use the middle of the image.
const char* coordinates_of(const RecordedOperation& op) {
  return op.flag(2) ? "align_corners" : "half_pixel";
}

void lower_interpolation(RecordedOperation& op, const Operator& entry) {
  emit_resize(op, {entry.onnx, coordinates_of(op)}, 3);
}

void lower_antialiased(RecordedOperation& op, const Operator& entry) {
  emit_resize(op, {entry.onnx, coordinates_of(op), "floor", true}, 3);
}

constexpr Operator kUpsampling[] = {
    {"_upsample_bicubic2d_aa", lower_antialiased, "cubic"},
    {"_upsample_bilinear2d_aa", lower_antialiased, "linear"},
    {"_upsample_nearest_exact1d", lower_nearest_exact},
    {"_upsample_nearest_exact2d", lower_nearest_exact},
    {"_upsample_nearest_exact3d", lower_nearest_exact},
    {"upsample_bicubic2d", lower_interpolation, "cubic"},
    {"upsample_bilinear2d", lower_interpolation, "linear"},
    {"upsample_linear1d", lower_interpolation, "linear"},
    {"upsample_nearest1d", lower_nearest},
    {"upsample_nearest2d", lower_nearest},
    {"upsample_nearest3d", lower_nearest},
    {"upsample_trilinear3d", lower_interpolation, "linear"},
};

}  // namespace

Family upsampling_operators() { return kUpsampling; }

}  // namespace lockstep::onnx
