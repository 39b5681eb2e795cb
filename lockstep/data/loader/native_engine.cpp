// The native engine: AugmentationPlan on every image of a batch.
#include <cstddef>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/image_buffer.h>
#include <lockstep/data/loader/loader_engine.h>
#include <lockstep/data/loader/ring_engine.h>

namespace lockstep::detail {
namespace {

// The distance between prefetching an image and reading it.
constexpr std::size_t kPrefetchedImages = 3;

class NativeFill {
 public:
  NativeFill(const ImageDataset& dataset, const Augmentation& augmentation,
             const LoaderOptions& options)
      : dataset_(dataset),
        skip_(options.on_corrupt_image == OnCorruptImage::kSkip),
        plan_(
            augmentation, dataset.shape(),
            {.layout = options.channels_last ? data::Layout::kChannelsLast : data::Layout::kPlanar,
             .type = data::pixel_type(options.dtype)}),
        slots_(data::RingEngine::slots(options)) {
    for (Slot& slot : slots_) slot.memory = data::make_image_buffer(options, plan_.output_shape());
  }

  void operator()(int number, const BatchRequest& request, LoadedBatch& loaded) {
    Slot& slot = slots_[number];
    auto* images = static_cast<std::byte*>(slot.memory.images.data_ptr());
    auto* labels = slot.memory.labels.data_ptr<std::int64_t>();
    std::int64_t count = 0;
    for (std::size_t i = 0; i < request.indices.size(); ++i) {
      const std::int64_t index = request.indices[i];
      if (i + kPrefetchedImages < request.indices.size())
        dataset_.prefetch(request.indices[i + kPrefetchedImages]);
      try {
        dataset_.read(index, slot.reader);
        plan_.apply(slot.reader, request.key(i), images + count * plan_.output_bytes());
      } catch (const DataError& error) {
        if (!skip_) throw;
        loaded.skipped.push_back({index, error.what()});
        continue;
      }
      labels[count++] = dataset_.label(index);
    }
    if (count == 0) {
      throw DataError(lockstep::str(
          "none of the ", request.indices.size(),
          " images of a batch can be read; the first: ", loaded.skipped.at(0).reason));
    }
    loaded.store(data::first_images(slot.memory, count));
  }

 private:
  struct Slot {
    Batch memory;
    ImageReader reader;  // one thread fills a slot at a time
  };

  const ImageDataset dataset_;
  const bool skip_;
  const data::AugmentationPlan plan_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<LoaderEngine> make_native_engine(const ImageDataset& dataset,
                                                 const Augmentation& augmentation,
                                                 const LoaderOptions& options) {
  auto fill = std::make_shared<NativeFill>(dataset, augmentation, options);
  auto engine = std::make_unique<data::RingEngine>(
      options, [fill](int slot, const BatchRequest& request, LoadedBatch& loaded) {
        (*fill)(slot, request, loaded);
      });
  return data::on_device(std::move(engine), options);
}

}  // namespace lockstep::detail
