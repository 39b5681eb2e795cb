#include <tests/support/far_device/streams.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <tests/support/far_device/far_device.h>
#include <tests/support/far_device/waits.h>

namespace lockstep::testing_support::far_device {
namespace {

thread_local std::array<c10::StreamId, kDevices> current_stream{};

// One mutex for all streams, because work in one stream may wait for another.
std::recursive_mutex& stream_mutex() {
  static auto* const mutex = new std::recursive_mutex();
  return *mutex;
}

// The device's clock: each piece of work takes one millisecond.
std::atomic<std::int64_t> work_done{0};

struct FarEvent {
  Queue* queue = nullptr;
  std::uint64_t point = 0;
  int questions = 0;
  std::shared_ptr<double> reached_ms{};  // null for an event without timing
};

class FarGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    uncheckedSetDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {kType, static_cast<c10::DeviceIndex>(current_index)};
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < kDevices, "no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_index = index_of(device);
  }
  c10::Stream getStream(c10::Device device) const override { return stream_of_thread(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index_of(device)), next++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = stream_of_thread(stream.device());
    current_stream[static_cast<std::size_t>(stream.device_index())] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<FarEvent*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new FarEvent();
    Queue& queue = queue_of(stream);
    if (flag != c10::EventFlag::BACKEND_DEFAULT) {
      *static_cast<FarEvent*>(*event) = {&queue, queue.end(), 0, nullptr};
      return;
    }
    auto reached = std::make_shared<double>(0);
    const auto point = queue.push([reached] { *reached = static_cast<double>(work_done); });
    *static_cast<FarEvent*>(*event) = {&queue, point, 0, std::move(reached)};
  }
  // Throws where CUDA does: between events that the device has not reached.
  double elapsedTime(void* earlier, void* later, c10::DeviceIndex) const override {
    const auto reached = [](void* event) {
      const FarEvent& asked = *static_cast<FarEvent*>(event);
      TORCH_CHECK(asked.reached_ms, "the event has no timing");
      TORCH_CHECK(asked.queue->has_reached(asked.point), "the event has not been reached");
      return *asked.reached_ms;
    };
    return reached(later) - reached(earlier);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const FarEvent awaited = *static_cast<FarEvent*>(event);
    Queue& waiting = queue_of(stream);
    if (&waiting == awaited.queue) return;  // work in one stream is in order anyway
    waiting.push([awaited] { awaited.queue->run_to(awaited.point); });
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    FarEvent& asked = *static_cast<FarEvent*>(event);
    if (asked.queue->has_reached(asked.point)) return true;
    if (holds > 0 || ++asked.questions < 2) return false;
    asked.queue->run_to(asked.point);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    const FarEvent& awaited = *static_cast<FarEvent*>(event);
    if (!awaited.queue->has_reached(awaited.point)) note_wait("wait for an event");
    awaited.queue->run_to(awaited.point);
  }
  bool queryStream(const c10::Stream& stream) const override {
    Queue& queue = queue_of(stream);
    return queue.has_reached(queue.end());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Queue& queue = queue_of(stream);
    note_wait("wait for a stream");
    queue.run_to(queue.end());
  }
};

}  // namespace

std::uint64_t Queue::push(std::function<void()> work) {
  const std::scoped_lock lock(stream_mutex());
  pending_.push_back(std::move(work));
  return pushed_ += 1;
}

std::uint64_t Queue::end() const {
  const std::scoped_lock lock(stream_mutex());
  return pushed_;
}

bool Queue::has_reached(std::uint64_t point) const {
  const std::scoped_lock lock(stream_mutex());
  return done_ >= point;
}

void Queue::run_to(std::uint64_t point) {
  while (holds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::scoped_lock lock(stream_mutex());
  while (done_ < point) {
    const auto work = std::move(pending_.front());
    pending_.pop_front();
    work();
    ++work_done;
    ++done_;
  }
}

Queue& queue_of(c10::Stream stream) {
  static auto* const queues = new std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Queue>();
  const std::scoped_lock lock(stream_mutex());
  return (*queues)[{stream.device_index(), stream.id()}];
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(current_index);
}

c10::Stream stream_of_thread(c10::Device device) {
  const auto index = index_of(device);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index),
                     current_stream[static_cast<std::size_t>(index)]);
}

const c10::impl::DeviceGuardImplInterface& far_guard() {
  static const auto* const guard = new FarGuard();
  return *guard;
}

}  // namespace lockstep::testing_support::far_device
