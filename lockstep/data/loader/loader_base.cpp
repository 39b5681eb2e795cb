#include <lockstep/data/loader/loader_base.h>

#include <torch/cuda.h>

#include <algorithm>
#include <limits>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/data/loader/batch_mix.h>
#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::detail {
namespace {

// A damaged disk gets a summary, not a line per image.
constexpr std::int64_t kSkippedImagesNamed = 10;

const LoaderOptions& checked(const LoaderOptions& options) {
  const OptionCheck check("Loader");
  check.in_range("batch_size", static_cast<double>(options.batch_size), 1, 1 << 24);
  check.in_range("threads", options.threads, 0, 1024);
  check.in_range("prefetch", options.prefetch, 1, 1024);
  check_mix(options.mix);
  // Otherwise pinned memory would fail first, with a stack trace that does not name the device.
  if (options.device.is_cuda() && !torch::cuda::is_available()) {
    throw ConfigError(
        lockstep::str("Loader: device is ", options.device.str(),
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

const LoaderOptions& checked_for_own_batches(const LoaderOptions& options) {
  if (options.engine != LoaderEngineKind::kNative) {
    throw ConfigError(
        lockstep::str("Loader: the ", to_string(options.engine),
                      " engine makes batches of images; a BatchDataset makes its own"));
  }
  const auto refuse = [](const char* option) {
    throw ConfigError(lockstep::str("Loader: ", option,
                                    " is about images; a BatchDataset makes its own batches"));
  };
  if (options.on_corrupt_image != OnCorruptImage::kStop) refuse("on_corrupt_image");
  if (options.channels_last) refuse("channels_last");
  if (options.dtype != LoaderOptions().dtype) refuse("dtype");
  if (!std::holds_alternative<std::monostate>(options.mix)) {
    throw ConfigError(
        "Loader: a mix needs the classes of an ImageDataset; a BatchDataset makes its own");
  }
  return checked(options);
}

std::shared_ptr<const Sampler> checked_sampler(std::shared_ptr<const Sampler> sampler) {
  if (!sampler) throw ConfigError("Loader: got no sampler");
  return sampler;
}

std::int64_t checked_size(std::int64_t size) {
  if (size < 0) throw ConfigError("Loader: got no data set");
  return size;
}

}  // namespace

struct LoaderBase::State {
  State(std::string name_, std::int64_t dataset_size_, std::int64_t classes_,
        std::shared_ptr<const Sampler> sampler_, const LoaderOptions& options_,
        std::unique_ptr<LoaderEngine> engine_)
      : name(std::move(name_)),
        dataset_size(dataset_size_),
        classes(classes_),
        options(options_),
        cursor(checked_sampler(std::move(sampler_))),
        engine(std::move(engine_)) {}

  std::int64_t batches_of(std::int64_t images) const {
    const std::int64_t batch = options.batch_size;
    return options.drop_last ? images / batch : (images + batch - 1) / batch;
  }

  void begin(SamplerCursor there) {
    for (const std::int64_t index : there.rest()) {
      if (index >= 0 && index < dataset_size) continue;
      throw ConfigError(lockstep::str("Loader: the sampler gave index ", index, ", the data set ",
                                      name, " has ", dataset_size, " samples"));
    }
    engine->stop();
    cursor = std::move(there);
    started = true;
    engine->start({.epoch = cursor.epoch(),
                   .indices = cursor.rest(),
                   .occurrences = cursor.occurrences(),
                   .batches = batches_of(cursor.remaining())});
  }

  // Uses the position in the epoch, so that a restored epoch mixes as before, and the batch's first
  // image, which distinguishes ranks that see different images.
  void mix(std::int64_t place, std::int64_t first) {
    if (std::holds_alternative<std::monostate>(options.mix)) return;
    Batch batch = loaded.batch<Batch>();
    const MixChoice choice = choose(options.mix, batch.images.size(2), batch.images.size(3),
                                    {.seed = options.seed,
                                     .epoch = static_cast<std::uint32_t>(cursor.epoch()),
                                     .batch = static_cast<std::uint64_t>(place),
                                     .rank = static_cast<std::uint64_t>(first) & 0xFF'FFFF});
    data::mix_images(batch.images, choice);
    batch.labels = data::mix_labels(batch.labels, classes, choice);
    loaded.store(std::move(batch));
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
  const LoaderOptions options;
  // The position of the next batch. It moves only while the engine, which reads its rest(), is
  // stopped.
  SamplerCursor cursor;
  bool started = false;
  std::int64_t skipped = 0;
  Stopwatch waited;
  LoadedBatch loaded;
  const std::unique_ptr<LoaderEngine> engine;  // last: its threads use the other members
};

LoaderBase::LoaderBase(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
                       const Augmentation& augmentation, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset.name(), dataset.size(), dataset.num_classes(),
                                     std::move(sampler), options,
                                     make_engine(dataset, augmentation, checked(options)))) {}

LoaderBase::LoaderBase(std::int64_t dataset_size, MakeBatch make_batch,
                       std::shared_ptr<const Sampler> sampler, const LoaderOptions& options)
    : state_(std::make_unique<State>(
          "of the program", checked_size(dataset_size), 0, std::move(sampler), options,
          make_batch_dataset_engine(std::move(make_batch), checked_for_own_batches(options)))) {}

LoaderBase::~LoaderBase() = default;
LoaderBase::LoaderBase(LoaderBase&&) noexcept = default;

void LoaderBase::check_size(Batch& batch, std::int64_t size) {
  batch.size = size;
  for (const torch::Tensor& tensor : {batch.images, batch.labels}) {
    if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == size) continue;
    throw ConfigError(
        lockstep::str("BatchDataset::get: was asked for ", size, " samples, made ",
                      tensor.defined() ? lockstep::str(tensor.sizes()) : "no tensor"));
  }
}

const Sampler& LoaderBase::sampler() const { return state_->cursor.sampler(); }
const LoaderOptions& LoaderBase::options() const { return state_->options; }
double LoaderBase::waited_seconds() const { return state_->waited.seconds(); }
std::int64_t LoaderBase::skipped_images() const { return state_->skipped; }
std::int64_t LoaderBase::steps_per_epoch() const { return state_->batches_of(sampler().size()); }
std::int64_t LoaderBase::steps_left() const {
  return state_->batches_of(state_->cursor.remaining());
}

void LoaderBase::set_epoch(std::int64_t epoch, std::int64_t first_step) {
  State& state = *state_;
  const OptionCheck check("Loader::set_epoch");
  check.in_range("epoch", static_cast<double>(epoch), 0, std::numeric_limits<std::uint32_t>::max());
  check.in_range("first_step", static_cast<double>(first_step), 0,
                 static_cast<double>(steps_per_epoch()));
  const StopwatchScope waiting(state.waited);
  SamplerCursor there(state.cursor.shared_sampler());
  there.set_epoch(epoch);
  there.skip(std::min(first_step * state.options.batch_size, sampler().size()));
  state.begin(std::move(there));
}

SamplerPosition LoaderBase::position() const { return state_->cursor.position(); }

void LoaderBase::restore(const SamplerPosition& position) {
  const StopwatchScope waiting(state_->waited);
  SamplerCursor there(state_->cursor.shared_sampler());
  check_position(sampler(), position);
  const OptionCheck check("Loader::restore");
  check.in_range("epoch", static_cast<double>(position.epoch), 0,
                 std::numeric_limits<std::uint32_t>::max());
  there.restore(position);
  state_->begin(std::move(there));
}

std::shared_ptr<const BatchKernel> LoaderBase::defer_kernel(bool on) {
  State& state = *state_;
  if (!std::holds_alternative<std::monostate>(state.options.mix)) return nullptr;
  const StopwatchScope waiting(state.waited);
  state.engine->stop();
  auto kernel = state.engine->defer_kernel(on);
  if (state.started) state.begin(SamplerCursor(state.cursor));
  return kernel;
}

const LoadedBatch* LoaderBase::next_loaded() {
  State& state = *state_;
  if (!state.started) set_epoch(0);
  const StopwatchScope waiting(state.waited);
  if (!state.engine->next(state.loaded)) return nullptr;
  const std::int64_t place = state.cursor.place();
  const std::int64_t first = state.cursor.rest().front();
  state.cursor.skip(std::min(state.options.batch_size, state.cursor.remaining()));
  state.count(state.loaded.skipped);
  state.mix(place, first);
  return &state.loaded;
}

}  // namespace lockstep::detail
