#include <lockstep/data/loader/cuda/gather_engine.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/cuda/gather_plan.h>
#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/image_buffer.h>
#include <lockstep/data/loader/ring_engine.h>
#include <lockstep/data/loader/tensor_memory.h>

namespace lockstep::data {
namespace {

constexpr std::int64_t kStagingBytes = 64 << 20;

void copy_planar(const ImageView& image, std::uint8_t* to) {
  const auto [channels, height, width] = image.shape;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y, to += width) {
      const std::uint8_t* row = image.pixels + c * image.channel_stride + y * image.row_stride;
      if (image.pixel_stride == 1) {
        std::memcpy(to, row, static_cast<std::size_t>(width));
      } else {
        for (std::int64_t x = 0; x < width; ++x) to[x] = row[x * image.pixel_stride];
      }
    }
  }
}

torch::Tensor uploaded(const ImageDataset& dataset, torch::Device device) {
  const std::int64_t bytes = dataset.shape().elements();
  torch::Tensor images;
  try {
    images = torch::empty({dataset.size(), bytes}, torch::dtype(torch::kUInt8).device(device));
  } catch (const c10::OutOfMemoryError&) {
    throw ConfigError(
        lockstep::str("Loader: the cuda engine keeps the data set on the GPU, and ", dataset.name(),
                      " needs ", dataset.size() * bytes >> 20,
                      " MiB that are not free there; set LoaderOptions::engine to native"));
  }
  const std::int64_t chunk = std::clamp<std::int64_t>(kStagingBytes / bytes, 1, dataset.size());
  torch::Tensor staging = torch::empty({chunk, bytes}, torch::kUInt8);
  for (std::int64_t first = 0; first < dataset.size(); first += chunk) {
    const std::int64_t count = std::min(chunk, dataset.size() - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const ImageView image = dataset.image(first + i);
      check_declared(image.shape, dataset.shape(), static_cast<std::uint64_t>(first + i));
      copy_planar(image, staging.data_ptr<std::uint8_t>() + i * bytes);
    }
    images.narrow(0, first, count).copy_(staging.narrow(0, 0, count));
  }
  return images;
}

GatherType gather_type(torch::ScalarType dtype) {
  switch (pixel_type(dtype)) {
    case PixelType::kFloat16:
      return GatherType::kFloat16;
    case PixelType::kBFloat16:
      return GatherType::kBFloat16;
    case PixelType::kFloat32:
      break;
  }
  return GatherType::kFloat32;
}

void check_pixels(const ImageDataset& dataset) {
  ImageReader reader;
  if (dataset.shape().height > 0) dataset.read(0, reader);
  if (dataset.shape().height > 0 && reader.is_decoded()) return;
  throw ConfigError(lockstep::str(
      "Loader: the cuda engine needs images of one size as pixels, and those of ", dataset.name(),
      " are not; set LoaderOptions::engine to native, or pack them with "
      "`lockstep data pack --size`"));
}

// Makes the maps of a batch, as bytes, in pinned memory.
class MapFill {
 public:
  MapFill(const ImageDataset& dataset, std::shared_ptr<const GatherPlan> plan,
          const LoaderOptions& options)
      : dataset_(dataset), plan_(std::move(plan)), slots_(RingEngine::slots(options)) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(GatherImage));
    const auto memory = torch::TensorOptions().pinned_memory(options.device.is_cuda());
    for (Batch& slot : slots_) {
      slot = {.images = torch::empty({options.batch_size, kBytes}, memory.dtype(torch::kUInt8)),
              .labels = torch::empty({options.batch_size}, memory.dtype(torch::kInt64)),
              .size = options.batch_size};
    }
  }

  void operator()(int number, const BatchRequest& request, LoadedBatch& loaded) {
    Batch& slot = slots_[number];
    auto* maps = static_cast<GatherImage*>(slot.images.data_ptr());
    auto* labels = slot.labels.data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < request.indices.size(); ++i) {
      const std::int64_t index = request.indices[i];
      *maps++ = plan_->image(index, request.key(i));
      *labels++ = dataset_.label(index);
    }
    loaded.store(first_images(slot, request.size()));
  }

 private:
  const ImageDataset dataset_;
  const std::shared_ptr<const GatherPlan> plan_;
  std::vector<Batch> slots_;
};

// Makes batches on the device from maps that are already there.
class Gather final : public detail::BatchKernel {
 public:
  Gather(torch::Tensor source, std::shared_ptr<const GatherPlan> plan, const LoaderOptions& options,
         LaunchGather launch)
      : source_(std::move(source)),
        plan_(std::move(plan)),
        options_(options),
        type_(gather_type(options.dtype)),
        launch_(std::move(launch)) {}

  Batch make(const Batch& plan) const override {
    torch::Tensor memory;
    return {.images = gathered_images(plan, memory), .labels = plan.labels, .size = plan.size};
  }

  torch::Tensor gathered_images(const Batch& maps, torch::Tensor& memory) const {
    const auto pixels = torch::dtype(options_.dtype).device(options_.device);
    const std::vector<std::int64_t> strides = image_strides(options_, plan_->output_shape());
    const auto [channels, height, width] = plan_->output_shape();
    torch::Tensor images = reuse(memory, {maps.size, channels, height, width}, strides, pixels);
    launch_({.shape = plan_->shape(),
             .images = static_cast<const GatherImage*>(maps.images.const_data_ptr()),
             .count = maps.size,
             .source = source_.const_data_ptr<std::uint8_t>(),
             .output = images.data_ptr(),
             .type = type_});
    return images;
  }

 private:
  const torch::Tensor source_;
  const std::shared_ptr<const GatherPlan> plan_;
  const LoaderOptions options_;
  const GatherType type_;
  const LaunchGather launch_;
};

// Copies maps to the device and, unless the caller does it, gathers by them.
class GatherEngine final : public detail::LoaderEngine {
 public:
  GatherEngine(std::unique_ptr<detail::LoaderEngine> maps, const LoaderOptions& options,
               std::shared_ptr<const Gather> gather)
      : gather_(std::move(gather)) {
    const auto work = [this, device = options.device](const LoadedBatch& host, LoadedBatch& buffer,
                                                      std::vector<torch::Tensor>& memory) {
      buffer.store(made(host.batch<Batch>(), device, memory));
    };
    stage_ = work_on_device(std::move(maps), options, work);
  }

  void start(const detail::LoaderEpoch& epoch) override { stage_->start(epoch); }
  void stop() override { stage_->stop(); }
  bool next(LoadedBatch& loaded) override { return stage_->next(loaded); }
  std::shared_ptr<const detail::BatchKernel> defer_kernel(bool on) override {
    is_deferred_ = on;
    return gather_;
  }

 private:
  // On the stage's thread, which does not run while is_deferred_ changes.
  Batch made(const Batch& host, torch::Device device, std::vector<torch::Tensor>& memory) const {
    memory.resize(3);
    const auto there = [&](torch::Tensor& place, const torch::Tensor& from) {
      return copy_reusing(place, from, from.options().device(device).pinned_memory(false));
    };
    Batch batch = {.images = there(memory[0], host.images),
                   .labels = there(memory[1], host.labels),
                   .size = host.size};
    if (!is_deferred_) batch.images = gather_->gathered_images(batch, memory[2]);
    return batch;
  }

  const std::shared_ptr<const Gather> gather_;
  bool is_deferred_ = false;
  std::unique_ptr<detail::LoaderEngine> stage_;  // last: its thread uses the other members
};

}  // namespace

std::unique_ptr<detail::LoaderEngine> make_gather_engine(const ImageDataset& dataset,
                                                         const Augmentation& augmentation,
                                                         const LoaderOptions& options,
                                                         LaunchGather launch) {
  if (options.on_corrupt_image == OnCorruptImage::kSkip) {
    throw ConfigError(
        "Loader: the cuda engine reads all images at start and cannot skip one; "
        "leave LoaderOptions::on_corrupt_image at stop, or set LoaderOptions::engine to native");
  }
  check_pixels(dataset);
  auto plan =
      std::make_shared<const GatherPlan>(augmentation, dataset.shape(), options.channels_last);
  auto fill = std::make_shared<MapFill>(dataset, plan, options);
  auto maps = std::make_unique<RingEngine>(
      options, [fill](int slot, const BatchRequest& request, LoadedBatch& loaded) {
        (*fill)(slot, request, loaded);
      });
  auto gather = std::make_shared<const Gather>(uploaded(dataset, options.device), plan, options,
                                               std::move(launch));
  return std::make_unique<GatherEngine>(std::move(maps), options, std::move(gather));
}

void gather_on_cpu(const GatherLaunch& launch) {
  const auto write = [&](auto* output) {
    const GatherShape& shape = launch.shape;
    for (std::int64_t n = 0; n < launch.count; ++n) {
      for (int c = 0; c < shape.channels; ++c) {
        for (int y = 0; y < shape.height; ++y) {
          for (int x = 0; x < shape.width; ++x) {
            output[gather_place(shape, n, c, y, x)] =
                gathered(shape, launch.images[n], launch.source, c, y, x);
          }
        }
      }
    }
  };
  switch (launch.type) {
    case GatherType::kFloat32:
      return write(static_cast<float*>(launch.output));
    case GatherType::kBFloat16:
      return write(static_cast<c10::BFloat16*>(launch.output));
    case GatherType::kFloat16:
      return write(static_cast<c10::Half*>(launch.output));
  }
}

}  // namespace lockstep::data
