#include <lockstep/recipes/tensor_picture.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep::recipes {
namespace {

// Converts back to a byte; clamps values that an operator after Normalize moved out of range.
std::uint8_t byte_of(double value, double mean, double std) {
  const double byte = (value * std + mean) * 255;
  return byte > 0 ? static_cast<std::uint8_t>(std::lround(std::min(byte, 255.0))) : 0;
}

}  // namespace

report::Picture picture_of(const torch::Tensor& image, const Normalize& normalize) {
  const torch::Tensor on_cpu = image.detach().to(torch::kCPU, torch::kFloat32);
  const auto values = on_cpu.accessor<float, 3>();
  const std::int64_t last = values.size(0) - 1;
  report::Picture picture(values.size(1), values.size(2));
  for (std::int64_t y = 0; y < picture.height; ++y) {
    for (std::int64_t x = 0; x < picture.width; ++x) {
      for (std::int64_t i = 0; i < 3; ++i) {
        const std::int64_t c = std::min(i, last);
        const auto channel = static_cast<std::size_t>(c);
        picture.pixel(x, y)[i] =
            byte_of(values[c][y][x], normalize.mean[channel], normalize.std[channel]);
      }
    }
  }
  return picture;
}

}  // namespace lockstep::recipes
