// Resizing of images.
#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/Functions.h>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// One dimension of a resized image. `factor` is the caller's, if any: LibTorch then uses it for the
// coordinates, even where the sizes are not its multiples.
struct Side {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::optional<double> factor{};

  bool is_exact() const {
    return !factor || static_cast<double>(from) * *factor == static_cast<double>(to);
  }
};

// The factors that the caller gave, which may be for some sides only. upsample_bilinear2d(x, size,
// align_corners, [factors]) takes a list of them, or one argument for each dimension.
std::vector<std::optional<double>> given_factors(const RecordedOperation& op, std::size_t i,
                                                 std::size_t spatial) {
  if (op.is_list(i)) {
    const std::vector<double> numbers = op.numbers(i);
    return {numbers.begin(), numbers.end()};
  }
  std::vector<std::optional<double>> factors(spatial);
  for (std::size_t d = 0; d < spatial; ++d) {
    if (op.has(i + d)) factors[d] = op.number(i + d);
  }
  return factors;
}

std::vector<Side> sides_of(const RecordedOperation& op, std::size_t factors_at) {
  const std::size_t spatial = op.sizes(0).size() - 2;
  const auto factors = given_factors(op, factors_at, spatial);
  std::vector<Side> sides;
  for (std::size_t d = 0; d < spatial; ++d) {
    Side& side = sides.emplace_back();
    side.from = op.fixed(op.sizes(0)[d + 2], "an image's size");
    side.to = op.fixed(op.result_sizes()[d + 2], "an image's size");
    side.factor = factors.at(d);
  }
  return sides;
}

// The type in which LibTorch computes the coordinates.
at::TensorOptions coordinates(const RecordedOperation& op) {
  return op.type(0) == at::kDouble ? at::kDouble : at::kFloat;
}

using ResizeImage = at::Tensor (*)(const at::Tensor& image, const std::vector<Side>& sides);

std::vector<std::int64_t> sizes_to(const std::vector<Side>& sides) {
  std::vector<std::int64_t> sizes;
  for (const Side& side : sides) sizes.push_back(side.to);
  return sizes;
}

at::Tensor nearest(const at::Tensor& image, const std::vector<Side>& sides) {
  const auto sizes = sizes_to(sides);
  if (sides.size() == 1) return at::upsample_nearest1d(image, sizes, sides[0].factor);
  if (sides.size() == 2) {
    return at::upsample_nearest2d(image, sizes, sides[0].factor, sides[1].factor);
  }
  return at::upsample_nearest3d(image, sizes, sides[0].factor, sides[1].factor, sides[2].factor);
}

at::Tensor nearest_exact(const at::Tensor& image, const std::vector<Side>& sides) {
  const auto sizes = sizes_to(sides);
  if (sides.size() == 1) return at::_upsample_nearest_exact1d(image, sizes, sides[0].factor);
  if (sides.size() == 2) {
    return at::_upsample_nearest_exact2d(image, sizes, sides[0].factor, sides[1].factor);
  }
  return at::_upsample_nearest_exact3d(image, sizes, sides[0].factor, sides[1].factor,
                                       sides[2].factor);
}

// The pixels of side `d` that LibTorch itself chooses: it resizes an image of their positions.
at::Tensor chosen_pixels(const RecordedOperation& op, ResizeImage resize,
                         const std::vector<Side>& sides, std::size_t d) {
  std::vector<std::int64_t> along(sides.size() + 2, 1);
  along[d + 2] = sides[d].from;
  std::vector<std::int64_t> sizes = {1, 1};
  for (const Side& side : sides) sizes.push_back(side.from);
  const at::Tensor positions = at::arange(sides[d].from, coordinates(op)).view(along);
  at::Tensor resized = resize(positions.expand(sizes).contiguous(), sides);
  for (std::size_t e = 0; e < along.size(); ++e) {
    if (e != d + 2) resized = resized.narrow(static_cast<std::int64_t>(e), 0, 1);
  }
  return resized.flatten().to(at::kLong);
}

// LibTorch rounds the product of a position and a factor, so that for some sizes (8 to 82) it
// chooses the pixel before the exact one, which ONNX's Resize takes. Each side becomes a Gather of
// the chosen pixels, unless all pixels are repeated equally often.
void emit_nearest(RecordedOperation& op, ResizeImage resize) {
  const auto sides = sides_of(op, 2);
  std::vector<at::Tensor> chosen;
  bool repeats = true;
  for (std::size_t d = 0; d < sides.size(); ++d) {
    chosen.push_back(chosen_pixels(op, resize, sides, d));
    const auto [from, to, factor] = sides[d];
    repeats = repeats && to % from == 0 &&
              at::equal(chosen[d], at::arange(from, at::kLong).repeat_interleave(to / from));
  }
  std::string x = op.tensor(0);
  if (repeats) {
    return op.result("Resize", {x, "", "", op.graph().sizes(op.result_sizes())},
                     {{"mode", "nearest"},
                      {"coordinate_transformation_mode", "asymmetric"},
                      {"nearest_mode", "floor"}});
  }
  for (std::size_t d = 0; d < sides.size(); ++d) {
    if (at::equal(chosen[d], at::arange(sides[d].from, at::kLong))) continue;
    x = op.add("Gather", {x, op.graph().constant(chosen[d], "")},
               {{"axis", static_cast<std::int64_t>(d + 2)}});
  }
  op.bind(x);
}

void lower_nearest(RecordedOperation& op, const Operator&) { emit_nearest(op, nearest); }

void lower_nearest_exact(RecordedOperation& op, const Operator&) {
  emit_nearest(op, nearest_exact);
}

using ResizeLine = at::Tensor (*)(const at::Tensor& x, const Side& side, bool align_corners);

// Interpolation along one side is a product with a matrix, which LibTorch computes here from the
// unit vectors: [from, to].
at::Tensor weights_of_side(const RecordedOperation& op, const Side& side, ResizeLine resize) {
  return resize(at::eye(side.from, coordinates(op)).unsqueeze(0), side, op.flag(2)).squeeze(0);
}

// For factors to which the sizes do not correspond: ONNX's Resize takes sizes or factors, but
// LibTorch gives the sizes of the one with the coordinates of the other.
void emit_matrices(RecordedOperation& op, const std::vector<Side>& sides, ResizeLine resize) {
  const auto rank = static_cast<std::int64_t>(op.sizes(0).size());
  std::string x = op.tensor(0);
  for (std::size_t d = 0; d < sides.size(); ++d) {
    const at::Tensor weights = weights_of_side(op, sides[d], resize);
    std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[d + 2], order.back());
    const bool is_last = d + 1 == sides.size();
    if (!is_last) x = op.transpose(x, order);
    x = op.add("MatMul", {x, op.graph().constant(weights.to(op.type(0)), "")});
    if (!is_last) x = op.transpose(x, order);
  }
  op.bind(x);
}

struct Interpolation {
  const char* mode;
  ResizeLine resize;
  bool antialias = false;
};

// ONNX's pytorch_half_pixel uses coordinate 0 if a side of the result is 1, like early versions of
// PyTorch's interpolate(); current versions use the middle of the image.
void emit_interpolation(RecordedOperation& op, const Interpolation& how) {
  if (!at::isFloatingType(op.type(0))) {
    op.reject("whole numbers can be resized in nearest modes only");
  }
  const auto sides = sides_of(op, 3);
  const bool exact =
      std::all_of(sides.begin(), sides.end(), [](const Side& side) { return side.is_exact(); });
  const bool align_corners = op.flag(2);
  // Factors have no effect if the corners are aligned.
  if (!exact && !align_corners) return emit_matrices(op, sides, how.resize);
  Attributes attributes = {
      {"mode", how.mode},
      {"coordinate_transformation_mode", align_corners ? "align_corners" : "half_pixel"},
      {"cubic_coeff_a", how.antialias ? -0.5 : -0.75}};
  if (how.antialias) {
    // onnxruntime has other weights for aligned corners.
    if (op.opset() < 18 || align_corners) return emit_matrices(op, sides, how.resize);
    attributes.emplace_back("antialias", 1);
    attributes.emplace_back("exclude_outside", 1);  // weights beyond the border are ignored
  }
  op.result("Resize", {op.tensor(0), "", "", op.graph().sizes(op.result_sizes())}, attributes);
}

void lower_linear_resize(RecordedOperation& op, const Operator&) {
  emit_interpolation(op, {"linear", [](const at::Tensor& x, const Side& side, bool corners) {
                            return at::upsample_linear1d(x, {side.to}, corners, side.factor);
                          }});
}

// The functions for two dimensions resize a single row.
void lower_cubic_resize(RecordedOperation& op, const Operator&) {
  emit_interpolation(op, {"cubic", [](const at::Tensor& x, const Side& side, bool corners) {
                            return at::upsample_bicubic2d(x.unsqueeze(2), {1, side.to}, corners,
                                                          std::nullopt, side.factor)
                                .squeeze(2);
                          }});
}

void lower_linear_antialiased(RecordedOperation& op, const Operator&) {
  const ResizeLine resize = [](const at::Tensor& x, const Side& side, bool corners) {
    return at::_upsample_bilinear2d_aa(x.unsqueeze(2), {1, side.to}, corners, std::nullopt,
                                       side.factor)
        .squeeze(2);
  };
  emit_interpolation(op, {"linear", resize, /*antialias=*/true});
}

void lower_cubic_antialiased(RecordedOperation& op, const Operator&) {
  const ResizeLine resize = [](const at::Tensor& x, const Side& side, bool corners) {
    return at::_upsample_bicubic2d_aa(x.unsqueeze(2), {1, side.to}, corners, std::nullopt,
                                      side.factor)
        .squeeze(2);
  };
  emit_interpolation(op, {"cubic", resize, /*antialias=*/true});
}

constexpr Operator kUpsampling[] = {
    {"_upsample_bicubic2d_aa", lower_cubic_antialiased},
    {"_upsample_bilinear2d_aa", lower_linear_antialiased},
    {"_upsample_nearest_exact1d", lower_nearest_exact},
    {"_upsample_nearest_exact2d", lower_nearest_exact},
    {"_upsample_nearest_exact3d", lower_nearest_exact},
    {"upsample_bicubic2d", lower_cubic_resize},
    {"upsample_bilinear2d", lower_linear_resize},
    {"upsample_linear1d", lower_linear_resize},
    {"upsample_nearest1d", lower_nearest},
    {"upsample_nearest2d", lower_nearest},
    {"upsample_nearest3d", lower_nearest},
    {"upsample_trilinear3d", lower_linear_resize},
};

}  // namespace

Family upsampling_operators() { return kUpsampling; }

}  // namespace lockstep::onnx
