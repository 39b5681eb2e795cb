#include <lockstep/data/loader.h>

#include <torch/cuda.h>

#include <algorithm>
#include <limits>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/data/batch_mix.h>
#include <lockstep/data/device_stage.h>
#include <lockstep/data/loader_engine.h>
#include <lockstep/data/ring_engine.h>

namespace lockstep {
namespace {

// A damaged disk is told of, not written down image by image.
constexpr std::int64_t kSkippedImagesNamed = 10;

const LoaderOptions& checked(const LoaderOptions& options) {
  const OptionCheck check("Loader");
  check.in_range("batch_size", static_cast<double>(options.batch_size), 1, 1 << 24);
  check.in_range("threads", options.threads, 0, 1024);
  check.in_range("prefetch", options.prefetch, 1, 1024);
  check_mix(options.mix);
  // Else pinned memory fails first, with a stack and no word about the device.
  if (options.device.is_cuda() && !torch::cuda::is_available()) {
    throw ConfigError(lockstep::str("Loader: device is ", options.device.str(),
                                    ", and there is no GPU, or this LibTorch is not built for one"));
  }
  return options;
}

std::unique_ptr<LoaderEngine> make_engine(const ImageDataset& dataset,
                                          const Augmentation& augmentation,
                                          const LoaderOptions& options) {
  switch (options.engine) {
    case LoaderEngineKind::kCuda:
      return make_cuda_engine(dataset, augmentation, options);
    case LoaderEngineKind::kDali:
      return make_dali_engine(dataset, augmentation, options);
    case LoaderEngineKind::kNative:
      break;
  }
  return make_native_engine(dataset, augmentation, options);
}

std::unique_ptr<LoaderEngine> make_engine(std::shared_ptr<const BatchDataset> dataset,
                                          const LoaderOptions& options) {
  if (options.engine != LoaderEngineKind::kNative) {
    throw ConfigError(lockstep::str("Loader: the ", to_string(options.engine),
                                    " engine makes batches of images; a BatchDataset makes its own"));
  }
  const auto refuse = [](const char* option) {
    throw ConfigError(lockstep::str("Loader: ", option, " is about images; a BatchDataset makes its own batches"));
  };
  if (options.on_corrupt_image != OnCorruptImage::kStop) refuse("on_corrupt_image");
  if (options.channels_last) refuse("channels_last");
  if (options.dtype != LoaderOptions().dtype) refuse("dtype");
  if (!std::holds_alternative<std::monostate>(options.mix)) {
    throw ConfigError("Loader: a mix needs the classes of an ImageDataset; a BatchDataset makes its own");
  }
  auto fill = [dataset = std::move(dataset)](int, const BatchRequest& request,
                                             LoadedBatch& loaded) {
    dataset->get(request.indices, loaded.batch);
    loaded.batch.size = static_cast<std::int64_t>(request.indices.size());
    for (const torch::Tensor& tensor : {loaded.batch.images, loaded.batch.labels}) {
      if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == loaded.batch.size) continue;
      throw ConfigError(lockstep::str("BatchDataset::get: was asked for ", loaded.batch.size,
                                      " samples, made ",
                                      tensor.defined() ? lockstep::str(tensor.sizes()) : "no tensor"));
    }
  };
  return on_device(std::make_unique<RingEngine>(options, std::move(fill)), options);
}

std::int64_t size_of(const std::shared_ptr<const BatchDataset>& dataset) {
  if (!dataset) throw ConfigError("Loader: got no data set");
  return dataset->size();
}

}  // namespace

struct Loader::State {
  State(std::string name_, std::int64_t dataset_size_, std::int64_t classes_,
        std::shared_ptr<const Sampler> sampler_,
        const LoaderOptions& options_, std::unique_ptr<LoaderEngine> engine_)
      : name(std::move(name_)),
        dataset_size(dataset_size_),
        classes(classes_),
        sampler(std::move(sampler_)),
        options(options_),
        engine(std::move(engine_)) {
    if (!sampler) throw ConfigError("Loader: got no sampler");
  }

  std::int64_t batches_from(std::int64_t place) const {
    const std::int64_t left = sampler->size() - place;
    const std::int64_t batch = options.batch_size;
    return options.drop_last ? left / batch : (left + batch - 1) / batch;
  }

  void begin(std::int64_t new_epoch, std::int64_t place) {
    const StopwatchScope waiting(waited);
    std::vector<std::int64_t> order = sampler->indices(new_epoch);
    for (const std::int64_t index : order) {
      if (index >= 0 && index < dataset_size) continue;
      throw ConfigError(lockstep::str("Loader: the sampler gave index ", index, ", the data set ",
                                      name, " has ", dataset_size, " images"));
    }
    LOCKSTEP_CHECK(static_cast<std::int64_t>(order.size()) == sampler->size(), "the sampler gave ",
                   order.size(), " indices and says ", sampler->size());
    engine->stop();
    indices = std::move(order);
    epoch = new_epoch;
    next_place = place;
    started = true;
    engine->start(
        {.epoch = epoch, .indices = indices, .first = place, .batches = batches_from(place)});
  }

  // The place in the epoch, so that a restored epoch mixes as before; and the batch's first image, which
  // tells ranks apart that see different ones.
  void mix(Batch& batch, std::int64_t place) const {
    if (std::holds_alternative<std::monostate>(options.mix)) return;
    const MixChoice choice = choose(options.mix, batch.images.size(2), batch.images.size(3),
                                    {.seed = options.seed,
                                     .epoch = static_cast<std::uint32_t>(epoch),
                                     .batch = static_cast<std::uint64_t>(place),
                                     .rank = static_cast<std::uint64_t>(indices[place]) & 0xFF'FFFF});
    mix_images(batch.images, choice);
    batch.labels = mix_labels(batch.labels, classes, choice);
  }

  void count(const std::vector<CorruptImage>& images) {
    for (const CorruptImage& image : images) {
      if (++skipped > kSkippedImagesNamed) continue;
      log_warning("skipped image ", image.index, " of ", name, ": ", image.reason,
                  skipped == kSkippedImagesNamed ? "; others are only counted" : "");
    }
  }

  const std::string name;
  const std::int64_t dataset_size;
  const std::int64_t classes;
  const std::shared_ptr<const Sampler> sampler;
  const LoaderOptions options;
  std::vector<std::int64_t> indices;  // of the epoch; changes only while the engine stands still
  std::int64_t epoch = 0;
  std::int64_t next_place = 0;  // of the next batch's first index in the epoch
  bool started = false;
  std::int64_t skipped = 0;
  Stopwatch waited;
  LoadedBatch loaded;
  const std::unique_ptr<LoaderEngine> engine;  // last: its threads end before what they use
};

Loader::Loader(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
               Augmentation augmentation, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset.name(), dataset.size(), dataset.num_classes(), std::move(sampler), options,
                                     make_engine(dataset, augmentation, checked(options)))) {}

Loader::Loader(std::shared_ptr<const BatchDataset> dataset, std::shared_ptr<const Sampler> sampler,
               const LoaderOptions& options)
    : state_(std::make_unique<State>("of the program", size_of(dataset), 0, std::move(sampler), options,
                                     make_engine(dataset, checked(options)))) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

const Sampler& Loader::sampler() const { return *state_->sampler; }
const LoaderOptions& Loader::options() const { return state_->options; }
double Loader::waited_seconds() const { return state_->waited.seconds(); }
std::int64_t Loader::skipped_images() const { return state_->skipped; }
std::int64_t Loader::steps_per_epoch() const { return state_->batches_from(0); }
std::int64_t Loader::steps_left() const { return state_->batches_from(state_->next_place); }

void Loader::set_epoch(std::int64_t epoch, std::int64_t first_step) {
  State& state = *state_;
  const OptionCheck check("Loader::set_epoch");
  check.in_range("epoch", static_cast<double>(epoch), 0, std::numeric_limits<std::uint32_t>::max());
  check.in_range("first_step", static_cast<double>(first_step), 0,
                 static_cast<double>(steps_per_epoch()));
  state.begin(epoch, std::min(first_step * state.options.batch_size, state.sampler->size()));
}

SamplerPosition Loader::position() const {
  return position_of(*state_->sampler, state_->epoch, state_->next_place);
}

void Loader::restore(const SamplerPosition& position) {
  const std::int64_t place = next_at(*state_->sampler, position);
  const OptionCheck check("Loader::restore");
  check.in_range("epoch", static_cast<double>(position.epoch), 0,
                 std::numeric_limits<std::uint32_t>::max());
  state_->begin(position.epoch, place);
}

bool Loader::next(Batch& batch) {
  State& state = *state_;
  if (!state.started) set_epoch(0);
  const StopwatchScope waiting(state.waited);
  if (!state.engine->next(state.loaded)) return false;
  const std::int64_t place = state.next_place;
  state.next_place =
      std::min(state.next_place + state.options.batch_size, state.sampler->size());
  state.count(state.loaded.skipped);
  batch = state.loaded.batch;
  state.mix(batch, place);
  return true;
}

}  // namespace lockstep
