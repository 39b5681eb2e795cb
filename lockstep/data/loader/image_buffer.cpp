#include <lockstep/data/loader/image_buffer.h>

#include <lockstep/core/error.h>

namespace lockstep::data {

Batch make_image_buffer(const LoaderOptions& options, const ImageShape& shape) {
  const auto [channels, height, width] = shape;
  const std::vector<std::int64_t> sizes = {options.batch_size, channels, height, width};
  const auto memory = torch::TensorOptions().pinned_memory(!options.device.is_cpu());
  return {.images = torch::empty_strided(sizes, image_strides(options, shape),
                                         memory.dtype(options.dtype)),
          .labels = torch::empty({options.batch_size}, memory.dtype(torch::kInt64)),
          .size = options.batch_size};
}

// With one channel the two layouts are the same bytes. LibTorch would call such a tensor contiguous
// and choose the slower kernels of NCHW, so the strides are set explicitly.
std::vector<std::int64_t> image_strides(const LoaderOptions& options, const ImageShape& shape) {
  const auto [channels, height, width] = shape;
  if (options.channels_last) return {shape.elements(), 1, width * channels, channels};
  return {shape.elements(), height * width, width, 1};
}

Batch first_images(const Batch& buffer, std::int64_t count) {
  if (count == buffer.size) return buffer;
  return {.images = buffer.images.narrow(0, 0, count),
          .labels = buffer.labels.narrow(0, 0, count),
          .size = count};
}

PixelType pixel_type(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat32:
      return PixelType::kFloat32;
    case torch::kBFloat16:
      return PixelType::kBFloat16;
    case torch::kFloat16:
      return PixelType::kFloat16;
    default:
      throw ConfigError(lockstep::str("Loader: dtype must be float32, bfloat16 or float16, got ",
                                      c10::toString(dtype)));
  }
}

}  // namespace lockstep::data
