// The dali engine: NVIDIA DALI executes the list, with our random choices and our order of images.
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/augment/dali/pipeline.h>
#include <lockstep/data/loader/batch_ring.h>
#include <lockstep/data/loader/dali_batch.h>
#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/image_buffer.h>
#include <lockstep/data/loader/loader_engine.h>
#include <lockstep/data/loader/ring_engine.h>

namespace lockstep::detail {
namespace {

// Two batches in flight: DALI decodes one while it writes the other.
constexpr int kUnderWay = 2;

// Pins the calling thread, and threads that it starts, to `cpus` for the scope. With no cpus, the
// thread keeps its own.
class PinnedScope {
 public:
  explicit PinnedScope(const std::vector<int>& cpus) : before_(available_cpus()) {
    if (!cpus.empty() && !pin_to_cpus(cpus)) {
      log_warning("dali engine: cannot pin its threads to processors ", join(cpus));
    }
  }
  ~PinnedScope() { pin_to_cpus(before_); }
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;

 private:
  const std::vector<int> before_;
};

const LoaderOptions& that_stops_at_damage(const LoaderOptions& options) {
  if (options.on_corrupt_image == OnCorruptImage::kSkip) {
    throw ConfigError(
        "Loader: the dali engine cannot skip damaged images, a batch of DALI's fails as a whole; "
        "leave LoaderOptions::on_corrupt_image at stop, or set LoaderOptions::engine to native");
  }
  return options;
}

int gpu_number(torch::Device device) {
  if (device.is_cpu()) return -1;
  return device.has_index() ? device.index() : 0;
}

data::DaliPlanOptions plan_options(const ImageDataset& dataset, const LoaderOptions& options) {
  data::DaliPlanOptions plan = data::dali_input_of(dataset);
  plan.layout = options.channels_last ? data::Layout::kChannelsLast : data::Layout::kPlanar;
  plan.type = data::pixel_type(options.dtype);
  return plan;
}

// All calls of DALI come from the ring's only thread, or from the thread that stopped it.
class DaliEngine final : public LoaderEngine {
 public:
  DaliEngine(const ImageDataset& dataset, const Augmentation& augmentation,
             const LoaderOptions& options)
      : dataset_(dataset),
        options_(that_stops_at_damage(options)),
        plan_options_(plan_options(dataset, options)),
        plan_(augmentation, dataset.shape(), plan_options_),
        slots_(static_cast<std::size_t>(data::RingEngine::slots(options))),
        ring_([this](int slot, std::int64_t batch) { fill(slots_[slot], batch); },
              {.threads = std::min(options.threads, 1),
               .slots = data::RingEngine::slots(options),
               .cpus = options.cpus}) {
    build();
  }
  ~DaliEngine() override { stop(); }

  void start(const LoaderEpoch& epoch) override {
    stop();
    if (failure_ || !pipeline_) build();
    failure_ = nullptr;
    epoch_ = epoch;
    begun_ = 0;
    ring_.start(0, epoch.batches);
  }

  void stop() override {
    ring_.stop();
    while (!under_way_.empty()) {
      try {
        pop();
      } catch (const DataError&) {
        // That batch is no longer wanted.
      }
    }
  }

  bool next(LoadedBatch& loaded) override {
    const std::optional<int> number = ring_.next();
    if (!number) return false;
    Slot& slot = slots_[*number];
    const auto size = static_cast<std::int64_t>(slot.labels.size());
    const auto [channels, height, width] = plan_.output_shape();
    loaded.store(
        Batch{.images = torch::from_blob(slot.output.data(), {size, channels, height, width},
                                         data::image_strides(options_, plan_.output_shape()),
                                         torch::dtype(options_.dtype).device(options_.device)),
              .labels = torch::from_blob(slot.labels.data(), {size}, torch::kInt64),
              .size = size});
    loaded.skipped.clear();
    return true;
  }

 private:
  struct Slot {
    data::DaliOutput output;
    std::vector<std::int64_t> labels;
  };

  void build() {
    const PinnedScope pinned(options_.cpus);
    pipeline_.emplace(plan_, plan_options_,
                      data::DaliPipelineOptions{.batch_size = options_.batch_size,
                                                .threads = std::max(options_.threads, 1),
                                                .prefetch = kUnderWay,
                                                .gpu = gpu_number(options_.device)});
  }

  // Runs on the ring's thread, batch by batch.
  void fill(Slot& slot, std::int64_t batch) {
    const std::int64_t ahead = options_.threads > 0 ? kUnderWay : 1;
    slot.output = {};
    while (begun_ < std::min(batch + ahead, epoch_.batches) && !failure_) begin(begun_++);
    // A batch that could not be started fails when its turn comes.
    if (under_way_.empty()) std::rethrow_exception(failure_);
    const data::DaliBatch& oldest = *under_way_.front();
    slot.labels = oldest.labels();
    try {
      slot.output = pop();
      const std::size_t bytes = slot.labels.size() *
                                static_cast<std::size_t>(plan_.output_shape().elements()) *
                                torch::elementSize(options_.dtype);
      LOCKSTEP_CHECK(slot.output.bytes() == bytes, "DALI made ", slot.output.bytes(),
                     " bytes, not ", bytes);
    } catch (const DataError& error) {
      failure_ = explain(oldest, error);
      std::rethrow_exception(failure_);
    }
  }

  void begin(std::int64_t batch) {
    if (spare_.empty()) spare_.push_back(std::make_unique<data::DaliBatch>());
    try {
      const BatchRequest request =
          data::request_of(epoch_, batch, options_.batch_size, options_.seed);
      std::vector<SampleKey> keys;
      for (std::size_t i = 0; i < request.indices.size(); ++i) {
        keys.push_back(request.key(i));
      }
      spare_.back()->fill(dataset_, keys, plan_, plan_options_);
      pipeline_->run(spare_.back()->images(), spare_.back()->numbers());
    } catch (...) {
      failure_ = std::current_exception();
      return;
    }
    under_way_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }

  // Returns the oldest batch. A failure drops the pipeline and all batches in it.
  data::DaliOutput pop() {
    try {
      data::DaliOutput output = pipeline_->pop();
      retire();
      return output;
    } catch (const DataError&) {
      pipeline_.reset();
      while (!under_way_.empty()) retire();
      throw;
    }
  }

  void retire() {
    spare_.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }

  // DALI does not say which image failed: our decoder finds and names the file.
  std::exception_ptr explain(const data::DaliBatch& batch, const DataError& error) const {
    try {
      ImageReader reader;
      for (const std::int64_t index : batch.indices()) {
        dataset_.read(index, reader);
        reader.pixels({0, 0, reader.shape().height, reader.shape().width});
      }
      return std::make_exception_ptr(DataError(
          lockstep::str(error.what(), ", in a batch of ", batch.indices().size(), " images of ",
                        dataset_.name(), " from image ", batch.indices().front(), " on")));
    } catch (const DataError&) {
      return std::current_exception();
    }
  }

  const ImageDataset dataset_;
  const LoaderOptions options_;
  const data::DaliPlanOptions plan_options_;
  const data::DaliPlan plan_;
  LoaderEpoch epoch_;       // like all members below, changes only while the ring is stopped
  std::int64_t begun_ = 0;  // batches of the epoch that DALI was given
  std::exception_ptr failure_;
  std::deque<std::unique_ptr<data::DaliBatch>> under_way_;  // DALI reads their memory
  std::vector<std::unique_ptr<data::DaliBatch>> spare_;
  std::optional<data::DaliPipeline> pipeline_;
  std::vector<Slot> slots_;
  data::BatchRing ring_;  // last member: its thread ends before the state it uses is destroyed
};

}  // namespace

std::unique_ptr<LoaderEngine> make_dali_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options) {
  // Batches on a GPU are copied too: DALI frees or reuses its memory when a batch is released, and
  // the trainer may not have read the batch by then.
  return data::on_device(std::make_unique<DaliEngine>(dataset, augmentation, options), options);
}

}  // namespace lockstep::detail
