#include <lockstep/data/loader/device_stage.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/loader/batch_ring.h>
#include <lockstep/data/loader/tensor_memory.h>

namespace lockstep::data {
namespace {

// One batch that the trainer holds, one that is ready, one that is being made.
constexpr int kSlots = 3;

// The stream of the work, and events for pending reads of the trainer's stream. A no-op on a CPU.
class WorkStream {
 public:
  explicit WorkStream(torch::Device device) : device_(device) {
    if (device.is_cpu()) return;
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    for (auto& event : read_) event.emplace(device.type());
  }
  WorkStream(const WorkStream&) = delete;
  WorkStream& operator=(const WorkStream&) = delete;
  // Waits, because the memory may be reused afterwards.
  ~WorkStream() {
    if (!stream_) return;
    for (auto& event : read_) event->synchronize();
  }

  // Marks the current end of the trainer's stream, whose work so far may read from `slot`.
  void record_reads(int slot) {
    if (!stream_) return;
    read_[slot]->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  // Runs `work` on the stream, after those reads; returns when it is done.
  template <class Work>
  void write(int slot, Work&& work) {
    if (!stream_) return work();
    read_[slot]->block(*stream_);
    const c10::StreamGuard guard(*stream_);
    work();
    stream_->synchronize();
  }

 private:
  const torch::Device device_;
  std::optional<c10::Stream> stream_;
  std::array<std::optional<c10::Event>, kSlots> read_;
};

class DeviceStage final : public detail::LoaderEngine {
 public:
  DeviceStage(std::unique_ptr<detail::LoaderEngine> host, const LoaderOptions& options,
              DeviceWork work)
      : host_(std::move(host)),
        work_(std::move(work)),
        stream_(options.device),
        ring_([this](int slot, std::int64_t) { fill(slot); },
              {.threads = 1, .slots = kSlots, .cpus = options.cpus}) {}
  ~DeviceStage() override { release(); }

  void start(const detail::LoaderEpoch& epoch) override {
    stop();
    host_->start(epoch);
    ring_.start(0, epoch.batches);
  }

  void stop() override {
    release();
    ring_.stop();
    host_->stop();
  }

  bool next(LoadedBatch& loaded) override {
    release();
    in_use_ = ring_.next();
    if (in_use_) loaded = slots_[*in_use_].loaded;
    return in_use_.has_value();
  }

 private:
  struct Slot {
    std::vector<torch::Tensor> memory;
    LoadedBatch loaded;
  };

  void release() {
    if (in_use_) stream_.record_reads(*in_use_);
    in_use_.reset();
  }

  // Runs on the ring's thread. The host reuses its buffer in its next next(), after this is done.
  void fill(int index) {
    Slot& slot = slots_[index];
    LOCKSTEP_CHECK(host_->next(host_batch_), "the epoch has fewer batches than it was begun with");
    slot.loaded.skipped = host_batch_.skipped;
    stream_.write(index, [&] { work_(host_batch_, slot.loaded, slot.memory); });
  }

  std::unique_ptr<detail::LoaderEngine> host_;
  const DeviceWork work_;
  std::array<Slot, kSlots> slots_;
  LoadedBatch host_batch_;
  std::optional<int> in_use_;
  WorkStream stream_;
  BatchRing ring_;  // last member: its thread ends before the state it uses is destroyed
};

}  // namespace

std::unique_ptr<detail::LoaderEngine> work_on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options,
                                                     DeviceWork work) {
  return std::make_unique<DeviceStage>(std::move(host), options, std::move(work));
}

std::unique_ptr<detail::LoaderEngine> copy_to_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options) {
  const auto copy = [device = options.device](const LoadedBatch& from, LoadedBatch& buffer,
                                              std::vector<torch::Tensor>& memory) {
    buffer = from;
    memory.resize(from.tensors.size());
    for (std::size_t i = 0; i < memory.size(); ++i) {
      torch::Tensor& tensor = buffer.tensors[i];
      if (!tensor.defined()) continue;
      tensor =
          copy_reusing(memory[i], tensor, tensor.options().device(device).pinned_memory(false));
    }
  };
  return work_on_device(std::move(host), options, copy);
}

std::unique_ptr<detail::LoaderEngine> on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                const LoaderOptions& options) {
  if (options.device.is_cpu()) return host;
  return copy_to_device(std::move(host), options);
}

}  // namespace lockstep::data
