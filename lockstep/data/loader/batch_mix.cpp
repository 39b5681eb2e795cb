#include <lockstep/data/loader/batch_mix.h>

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep::data {
namespace {

void check_images(const torch::Tensor& images, const MixChoice& choice) {
  if (images.dim() != 4) {
    throw ConfigError(lockstep::str("mix_images: got images of shape ", images.sizes(),
                                    ", expected [size, channels, height, width]"));
  }
  if (!choice.box && !images.is_floating_point()) {
    throw ConfigError(lockstep::str("mix_images: MixUp needs images of floating point, got ",
                                    images.scalar_type()));
  }
  if (!choice.box) return;
  const auto [top, left, rows, columns] = *choice.box;
  if (std::min({top, left, rows, columns}) < 0 || top + rows > images.size(2) ||
      left + columns > images.size(3)) {
    throw ConfigError(lockstep::str("mix_images: rows ", top, " to ", top + rows, " and columns ",
                                    left, " to ", left + columns, " are not inside of images of ",
                                    images.size(2), "x", images.size(3)));
  }
}

bool is_channels_last(const torch::Tensor& images) {
  return !images.is_contiguous() && images.is_contiguous(torch::MemoryFormat::ChannelsLast);
}

// Goes from the last image to the first, so that the image before is still unmixed; only the last
// image has to be saved.
void blend_in_place(float* images, std::int64_t size, std::int64_t length, double lambda) {
  // Rounded as in torchvision's x.roll(1, 0).mul_(1 - lambda).add_(x.mul(lambda)).
  const auto own = static_cast<float>(lambda);
  const auto other = static_cast<float>(1 - lambda);
  const std::vector<float> last(images + (size - 1) * length, images + size * length);
  for (std::int64_t i = size - 1; i >= 0; --i) {
    float* image = images + i * length;
    const float* partner = i > 0 ? image - length : last.data();
    for (std::int64_t k = 0; k < length; ++k) image[k] = partner[k] * other + image[k] * own;
  }
}

void mix_up(torch::Tensor& images, double lambda) {
  // The images with the dimensions in the order of memory.
  torch::Tensor ordered = is_channels_last(images) ? images.permute({0, 2, 3, 1}) : images;
  if (ordered.is_cpu() && ordered.scalar_type() == torch::kFloat32 && ordered.is_contiguous()) {
    const std::int64_t size = ordered.size(0);
    return blend_in_place(ordered.mutable_data_ptr<float>(), size, ordered.numel() / size, lambda);
  }
  // With a Scalar in place, ATen would round the number to the images' type before multiplying.
  const auto number = [](double value) { return at::native::wrapped_scalar_tensor(value); };
  const torch::Tensor partners = ordered.roll(1, 0).mul_(number(1 - lambda));
  ordered.mul_(number(lambda)).add_(partners);
}

// The contiguous runs of bytes of a box, in an image whose dimensions are in the order of memory.
struct BoxRuns {
  std::size_t bytes;        // size of a run
  std::int64_t runs;        // in a group
  std::int64_t run_stride;  // bytes
  std::int64_t groups;
  std::int64_t group_stride;  // bytes
  std::int64_t first;         // bytes from the image's begin to the first run

  template <class Copy>
  void for_each(std::byte* image, const Copy& copy) const {
    for (std::int64_t group = 0; group < groups; ++group) {
      std::byte* run = image + first + group * group_stride;
      for (std::int64_t i = 0; i < runs; ++i, run += run_stride) copy(run);
    }
  }
};

void cut_in_place(torch::Tensor& images, const ImageRegion& box, bool channels_last) {
  const std::int64_t channels = images.size(1);
  const std::int64_t rows = images.size(2);
  const std::int64_t pixel = images.element_size() * (channels_last ? channels : 1);
  const std::int64_t row = images.size(3) * pixel;
  const BoxRuns runs{.bytes = static_cast<std::size_t>(box.width * pixel),
                     .runs = box.height,
                     .run_stride = row,
                     .groups = channels_last ? 1 : channels,
                     .group_stride = rows * row,
                     .first = box.top * row + box.left * pixel};
  const std::int64_t image_bytes = images.nbytes() / images.size(0);
  auto* first = static_cast<std::byte*>(images.mutable_data_ptr());
  std::byte* last = first + (images.size(0) - 1) * image_bytes;
  std::vector<std::byte> saved(runs.bytes * static_cast<std::size_t>(runs.runs * runs.groups));
  std::byte* place = saved.data();
  runs.for_each(last, [&](const std::byte* run) {
    std::memcpy(place, run, runs.bytes);
    place += runs.bytes;
  });
  for (std::byte* image = last; image != first; image -= image_bytes) {
    runs.for_each(image, [&](std::byte* run) { std::memcpy(run, run - image_bytes, runs.bytes); });
  }
  place = saved.data();
  runs.for_each(first, [&](std::byte* run) {
    std::memcpy(run, place, runs.bytes);
    place += runs.bytes;
  });
}

void cut_mix(torch::Tensor& images, const ImageRegion& box) {
  if (box.height == 0 || box.width == 0) return;
  const bool channels_last = is_channels_last(images);
  if (images.is_cpu() && (channels_last || images.is_contiguous())) {
    return cut_in_place(images, box, channels_last);
  }
  torch::Tensor part = images.narrow(2, box.top, box.height).narrow(3, box.left, box.width);
  part.copy_(part.roll(1, 0));
}

void add_probabilities(const torch::Tensor& labels, const MixChoice& choice,
                       torch::Tensor& result) {
  const auto label = labels.accessor<std::int64_t, 1>();
  auto probability = result.accessor<float, 2>();
  const std::int64_t size = labels.size(0);
  for (std::int64_t i = 0; i < size; ++i) {
    if (label[i] < 0 || label[i] >= result.size(1)) {
      throw DataError(lockstep::str("mix_labels: image ", i, " of the batch has label ", label[i],
                                    ", expected one from 0 to ", result.size(1) - 1));
    }
    probability[i][label[i]] += static_cast<float>(choice.lambda);
    probability[(i + 1) % size][label[i]] += static_cast<float>(1 - choice.lambda);
  }
}

}  // namespace

void mix_images(torch::Tensor& images, const MixChoice& choice) {
  check_images(images, choice);
  if (images.numel() == 0 || choice.lambda == 1) return;
  const torch::NoGradGuard no_grad;
  if (choice.box) return cut_mix(images, *choice.box);
  mix_up(images, choice.lambda);
}

torch::Tensor mix_labels(const torch::Tensor& labels, std::int64_t num_classes,
                         const MixChoice& choice) {
  if (labels.dim() != 1 || labels.scalar_type() != torch::kInt64) {
    throw ConfigError(lockstep::str("mix_labels: got labels of type ", labels.scalar_type(),
                                    " and shape ", labels.sizes(), ", expected int64 [size]"));
  }
  torch::Tensor result =
      torch::zeros({labels.size(0), num_classes}, labels.options().dtype(torch::kFloat32));
  if (labels.is_cpu()) {
    add_probabilities(labels, choice, result);
    return result;
  }
  const torch::Tensor own = labels.unsqueeze(1);
  const torch::Tensor other = own.roll(1, 0);
  result.scatter_(1, own, choice.lambda);
  return result.scatter_add_(1, other,
                             torch::full_like(other, 1 - choice.lambda, result.options()));
}

}  // namespace lockstep::data
