#include <lockstep/data/loader.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/batch_engine.h>

namespace lockstep {
namespace {

LoaderOptions checked(const LoaderOptions& options) {
  const OptionCheck check("Loader");
  check.in_range("batch_size", static_cast<double>(options.batch_size), 1, 1 << 24);
  check.in_range("threads", options.threads, 0, 1024);
  check.in_range("prefetch", options.prefetch, 1, 1024);
  return options;
}

std::shared_ptr<const Sampler> checked(std::shared_ptr<const Sampler> sampler) {
  if (!sampler) throw ConfigError("Loader: got no sampler");
  return sampler;
}

// The strides are spelled out: with one channel the two layouts are the same bytes, and LibTorch
// would call such a tensor contiguous and choose the slower kernels of NCHW.
torch::Tensor empty_images(const LoaderOptions& options, const ImageShape& shape) {
  const auto [channels, height, width] = shape;
  const std::vector<std::int64_t> sizes = {options.batch_size, channels, height, width};
  if (!options.channels_last) return torch::empty(sizes, options.dtype);
  return torch::empty_strided(sizes, {shape.elements(), 1, width * channels, channels},
                              options.dtype);
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

}  // namespace

struct Loader::State {
  State(ImageDataset dataset_, std::shared_ptr<const Sampler> sampler_,
        const Augmentation& augmentation, const LoaderOptions& options_)
      : dataset(std::move(dataset_)),
        sampler(checked(std::move(sampler_))),
        options(checked(options_)),
        plan(augmentation, dataset.shape(),
             {.layout = options.channels_last ? Layout::kChannelsLast : Layout::kPlanar,
              .type = pixel_type(options.dtype)}),
        buffers(options.threads > 0 ? options.prefetch + 1 : 1),
        readers(buffers.size()),
        engine([this](int slot, std::int64_t batch) { fill(slot, batch); },
               {.threads = options.threads, .slots = static_cast<int>(buffers.size())}) {
    for (Batch& buffer : buffers) {
      buffer.images = empty_images(options, plan.output_shape());
      buffer.labels = torch::empty({options.batch_size}, torch::kInt64);
    }
  }

  std::int64_t steps() const {
    const std::int64_t size = sampler->size();
    const std::int64_t batch = options.batch_size;
    return options.drop_last ? size / batch : (size + batch - 1) / batch;
  }

  std::int64_t size_of(std::int64_t batch) const {
    const std::int64_t left =
        static_cast<std::int64_t>(indices.size()) - batch * options.batch_size;
    return std::min(options.batch_size, left);
  }

  void fill(int slot, std::int64_t batch) {
    const std::int64_t* samples = indices.data() + batch * options.batch_size;
    auto* images = static_cast<std::byte*>(buffers[slot].images.data_ptr());
    auto* labels = buffers[slot].labels.data_ptr<std::int64_t>();
    ImageReader& reader = readers[slot];
    SampleKey key{.seed = options.seed, .epoch = static_cast<std::uint32_t>(epoch)};
    for (std::int64_t i = 0; i < size_of(batch); ++i) {
      key.sample = static_cast<std::uint64_t>(samples[i]);
      dataset.read(samples[i], reader);
      plan.apply(reader, key, images + i * plan.output_bytes());
      labels[i] = dataset.label(samples[i]);
    }
  }

  ImageDataset dataset;
  std::shared_ptr<const Sampler> sampler;
  LoaderOptions options;
  AugmentationPlan plan;
  std::vector<Batch> buffers;
  std::vector<ImageReader> readers;  // one a buffer, which one thread fills at a time
  std::vector<std::int64_t> indices;  // of the epoch; changes only while the engine stands still
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  bool started = false;
  Stopwatch waited;
  BatchEngine engine;  // last: its threads end before what they use
};

Loader::Loader(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
               Augmentation augmentation, const LoaderOptions& options)
    : state_(
          std::make_unique<State>(std::move(dataset), std::move(sampler), augmentation, options)) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

const ImageDataset& Loader::dataset() const { return state_->dataset; }
const Sampler& Loader::sampler() const { return *state_->sampler; }
const LoaderOptions& Loader::options() const { return state_->options; }
double Loader::waited_seconds() const { return state_->waited.seconds(); }
std::int64_t Loader::steps_per_epoch() const { return state_->steps(); }

void Loader::set_epoch(std::int64_t epoch, std::int64_t first_step) {
  State& state = *state_;
  const OptionCheck check("Loader::set_epoch");
  check.in_range("epoch", static_cast<double>(epoch), 0, std::numeric_limits<std::uint32_t>::max());
  check.in_range("first_step", static_cast<double>(first_step), 0,
                 static_cast<double>(state.steps()));
  state.engine.stop();
  state.indices = state.sampler->indices(epoch);
  for (const std::int64_t index : state.indices) {
    if (index < 0 || index >= state.dataset.size()) {
      throw ConfigError(str("Loader: the sampler gave index ", index, ", the data set ",
                            state.dataset.name(), " has ", state.dataset.size(), " images"));
    }
  }
  LOCKSTEP_CHECK(static_cast<std::int64_t>(state.indices.size()) == state.sampler->size(),
                 "the sampler gave ", state.indices.size(), " indices and says ",
                 state.sampler->size());
  state.epoch = epoch;
  state.step = first_step;
  state.started = true;
  state.engine.start(first_step, state.steps());
}

bool Loader::next(Batch& batch) {
  State& state = *state_;
  if (!state.started) set_epoch(0);
  const StopwatchScope waiting(state.waited);
  const std::optional<int> slot = state.engine.next();
  if (!slot) return false;
  const Batch& buffer = state.buffers[*slot];
  batch.size = state.size_of(state.step++);
  const bool whole = batch.size == state.options.batch_size;
  batch.images = whole ? buffer.images : buffer.images.narrow(0, 0, batch.size);
  batch.labels = whole ? buffer.labels : buffer.labels.narrow(0, 0, batch.size);
  return true;
}

}  // namespace lockstep
