// Rotation of images about their centre, with PIL's arithmetic: the same bytes as Image.rotate.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// The centre of output pixel (x, y), which is (x', y') = (x + 1/2, y + 1/2), shows the source at
///   matrix[0] * x' + matrix[1] * y' + matrix[2],  matrix[3] * x' + matrix[4] * y' + matrix[5].
struct Rotation {
  std::array<double, 6> matrix{};
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// A counterclockwise rotation by `degrees`, from 0 to below 360. With `expand` its height and
/// width are large enough for the whole rotated image.
Rotation make_rotation(double degrees, std::int64_t height, std::int64_t width, bool expand);

/// Rotates images in memory that is reused from one image to the next. Not thread-safe.
class Rotator {
 public:
  /// Writes a planar image of rotation.height x rotation.width. Pixels without a source show
  /// `fill`. Coordinates are in 16-bit fixed point for kNearest, and in float64 for kBilinear,
  /// whose result is rounded towards 0. `output` must not be the source's memory.
  void rotate(const ImageView& source, const Rotation& rotation, Interpolation interpolation,
              std::uint8_t fill, std::uint8_t* output);

 private:
  void rotate_nearest(const ImageView& source, const Rotation& rotation, std::uint8_t* output);

  std::vector<std::int64_t> places_;  // source positions of a row's pixels
  std::vector<std::uint64_t> pairs_;  // see rotate_pairs()
};

}  // namespace lockstep::data
