#include <lockstep/data/ring_engine.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <optional>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// One that the trainer holds, one that is ready, one that is being copied.
constexpr int kSlots = 3;

// The stream of the copies, and what the trainer's stream still reads. Nothing of it on a CPU.
class CopyStream {
 public:
  explicit CopyStream(torch::Device device) : device_(device) {
    if (device.is_cpu()) return;
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    for (auto& event : read_) event.emplace(device.type());
  }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  // The memory may go to somebody else afterwards.
  ~CopyStream() {
    if (!stream_) return;
    for (auto& event : read_) event->synchronize();
  }

  // What the trainer has put on its stream so far may read from `slot`.
  void record_reads(int slot) {
    if (!stream_) return;
    read_[slot]->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  // Runs `copy` on the stream, after those reads; returns when it is done.
  template <class Copy>
  void write(int slot, Copy&& copy) {
    if (!stream_) return copy();
    read_[slot]->block(*stream_);
    const c10::StreamGuard guard(*stream_);
    copy();
    stream_->synchronize();
  }

 private:
  const torch::Device device_;
  std::optional<c10::Stream> stream_;
  std::array<std::optional<c10::Event>, kSlots> read_;
};

// Reused memory for tensors of one kind, of which the last may have fewer samples.
torch::Tensor like(torch::Tensor& memory, const torch::Tensor& source, torch::Device device) {
  const bool fits = memory.defined() && memory.dtype() == source.dtype() &&
                    memory.strides() == source.strides() && memory.size(0) >= source.size(0) &&
                    memory.sizes().slice(1) == source.sizes().slice(1);
  if (!fits) {
    memory = torch::empty_strided(source.sizes(), source.strides(), source.options().device(device));
  }
  return memory.size(0) == source.size(0) ? memory : memory.narrow(0, 0, source.size(0));
}

class DeviceCopyEngine final : public LoaderEngine {
 public:
  DeviceCopyEngine(std::unique_ptr<LoaderEngine> host, torch::Device device)
      : host_(std::move(host)),
        device_(device),
        stream_(device),
        ring_([this](int slot, std::int64_t) { copy(slot); }, {.threads = 1, .slots = kSlots}) {}
  ~DeviceCopyEngine() override { release(); }

  void start(const LoaderEpoch& epoch) override {
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
    torch::Tensor images;
    torch::Tensor labels;
    LoadedBatch loaded;
  };

  void release() {
    if (in_use_) stream_.record_reads(*in_use_);
    in_use_.reset();
  }

  // On the ring's thread. The host's buffer is free again with its next next(), when the copy is done.
  void copy(int index) {
    Slot& slot = slots_[index];
    LOCKSTEP_CHECK(host_->next(host_batch_), "the epoch has fewer batches than it was begun with");
    const Batch& from = host_batch_.batch;
    slot.loaded.skipped = host_batch_.skipped;
    stream_.write(index, [&] {
      slot.loaded.batch = {.images = like(slot.images, from.images, device_),
                           .labels = like(slot.labels, from.labels, device_),
                           .size = from.size};
      slot.loaded.batch.images.copy_(from.images, /*non_blocking=*/true);
      slot.loaded.batch.labels.copy_(from.labels, /*non_blocking=*/true);
    });
  }

  std::unique_ptr<LoaderEngine> host_;
  const torch::Device device_;
  std::array<Slot, kSlots> slots_;
  LoadedBatch host_batch_;
  std::optional<int> in_use_;
  CopyStream stream_;
  BatchRing ring_;  // last: its thread ends before what it uses
};

}  // namespace

std::unique_ptr<LoaderEngine> copy_to_device(std::unique_ptr<LoaderEngine> host,
                                             torch::Device device) {
  return std::make_unique<DeviceCopyEngine>(std::move(host), device);
}

}  // namespace lockstep
