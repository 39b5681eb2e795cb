#include <tests/support/far_device.h>

#include <sys/mman.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing_support::far_device {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// --- Memory --------------------------------------------------------------------------------------

// Hands out addresses that fault on access. The byte of each is stored at a fixed distance behind
// it.
class FarMemory {
 public:
  FarMemory() {
    void* const begin =
        mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(begin);
    if (mprotect(begin_ + kBytes, kBytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }

  void* take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, kLeast));
    const std::scoped_lock lock(mutex_);
    std::vector<std::byte*>& free = free_[size];
    if (free.empty()) {
      TORCH_CHECK(used_ + size <= kBytes, "the far device has no memory for ", bytes, " bytes");
      free.push_back(begin_ + used_);
      used_ += size;
    }
    std::byte* const taken = free.back();
    free.pop_back();
    sizes_[taken] = size;
    std::memset(near(taken), 0xff, size);  // NaN, to expose missing initialisation
    return taken;
  }

  void give_back(void* data) {
    const std::scoped_lock lock(mutex_);
    auto* const given = static_cast<std::byte*>(data);
    free_[sizes_.at(given)].push_back(given);
    sizes_.erase(given);
  }

  std::byte* near(const void* far) const {
    auto* const address = static_cast<std::byte*>(const_cast<void*>(far));
    TORCH_CHECK(address >= begin_ && address < begin_ + kBytes, "not an address of the far device");
    return address + kBytes;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  static constexpr std::size_t kLeast = 256;
  std::byte* begin_ = nullptr;
  std::mutex mutex_;  // guards the members below
  std::size_t used_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::map<std::byte*, std::size_t> sizes_;
};

FarMemory& far_memory() {
  static auto* const memory = new FarMemory();  // tensors may outlive main()
  return *memory;
}

// --- Streams -------------------------------------------------------------------------------------

thread_local int current_index = 0;
thread_local std::array<c10::StreamId, kDevices> current_stream{};

// One mutex for all streams, because work in one stream may wait for another.
std::recursive_mutex& stream_mutex() {
  static auto* const mutex = new std::recursive_mutex();
  return *mutex;
}
std::atomic<int> holds{0};

// The device's clock: each piece of work takes one millisecond.
std::atomic<std::int64_t> work_done{0};

// --- Waits of the host ---------------------------------------------------------------------------

std::mutex waits_mutex;  // guards all_waits
std::vector<std::string> all_waits;
thread_local int operators_on_copies = 0;  // their reads would be no waits on a real device
thread_local const char* name_of_reads = "copy to the host";

void note_wait(const std::string& name) {
  if (operators_on_copies > 0) return;
  const std::scoped_lock lock(waits_mutex);
  all_waits.push_back(name);
}

// During its lifetime this thread's copies are part of an operator.
struct OperatorOnCopies {
  OperatorOnCopies() { ++operators_on_copies; }
  ~OperatorOnCopies() { --operators_on_copies; }
};

// The work of a stream, in order. It runs when a thread waits for a later point of the stream.
class Queue {
 public:
  std::uint64_t push(std::function<void()> work) {
    const std::scoped_lock lock(stream_mutex());
    pending_.push_back(std::move(work));
    return pushed_ += 1;
  }
  std::uint64_t end() const {
    const std::scoped_lock lock(stream_mutex());
    return pushed_;
  }
  bool has_reached(std::uint64_t point) const {
    const std::scoped_lock lock(stream_mutex());
    return done_ >= point;
  }
  void run_to(std::uint64_t point) {
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

 private:
  std::deque<std::function<void()>> pending_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
};

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

// --- Allocators ----------------------------------------------------------------------------------

class FarAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device here(kType, static_cast<c10::DeviceIndex>(current_index));
    if (bytes == 0) return {nullptr, here};
    void* const data = far_memory().take(bytes);
    return {data, data, &release, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(far_memory().near(to), far_memory().near(from), bytes);
  }

 private:
  static void release(void* data) { far_memory().give_back(data); }
};

// Host memory that LibTorch regards as pinned.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = std::malloc(std::max<std::size_t>(bytes, 1));
    const std::scoped_lock lock(mutex());
    ends()[static_cast<std::byte*>(data)] = static_cast<std::byte*>(data) + bytes;
    return {data, data, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool owns(const void* data) {
    const auto* const address = static_cast<const std::byte*>(data);
    const std::scoped_lock lock(mutex());
    auto after = ends().upper_bound(const_cast<std::byte*>(address));
    return after != ends().begin() && address < std::prev(after)->second;
  }

 private:
  static void release(void* data) {
    {
      const std::scoped_lock lock(mutex());
      ends().erase(static_cast<std::byte*>(data));
    }
    std::free(data);
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<std::byte*, std::byte*>& ends() {
    static auto* const ends = new std::map<std::byte*, std::byte*>();
    return *ends;
  }
};

PinnedAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator();
  return *allocator;
}

class FarHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_index = index; }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(current_index, index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::owns(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  // Only needed for seeds. Operators that draw random numbers run on the CPU, with its generator.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    return generator;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr larger = storage.allocator()->allocate(bytes);
    const std::size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) {
      std::memcpy(far_memory().near(larger.get()), far_memory().near(storage.data()), kept);
    }
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// --- Operators -----------------------------------------------------------------------------------

std::atomic<std::int64_t> blocking_read_count{0};
std::atomic<std::int64_t> recorded_stream_count{0};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::Device(kType, index_of(*device)));
  return at::detail::empty_generic(size, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::Device(kType, index_of(*device)));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::_reshape_alias(self, size, stride);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::cpu::view(self, size); }
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  return at::cpu::resize_(self, size, format);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}
at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  return at::cpu::set_(self, std::move(source));
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::cpu::set_(self, source);
}

// A host tensor on the memory of a far tensor. It owns that memory, because the far tensor may
// later be given other memory.
at::Tensor near(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone() || tensor.numel() == 0) {
    return tensor.is_privateuseone() ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU))
                                     : tensor.detach();
  }
  return at::from_blob(
      far_memory().near(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
      [storage = tensor.storage()](void*) {},
      tensor.options().device(at::kCPU).requires_grad(false));
}

// As on CUDA, the copy is work of the source's stream. It waits for the target's stream, which then
// waits for it.
at::Tensor copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  Queue& queue = queue_of(stream_of_thread(from.device()));
  Queue& other = queue_of(stream_of_thread(to.device()));
  queue.push([&other, point = other.end()] { other.run_to(point); });
  const std::uint64_t copied = queue.push([source = near(from), target = near(to)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    target.copy_(source);
  });
  other.push([&queue, copied] { queue.run_to(copied); });
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!from.is_cpu() && !to.is_cpu() && from.device() != to.device()) {
    return copy_between_devices(from, to);
  }
  const at::Tensor& there = from.is_privateuseone() ? from : to;
  Queue& queue = queue_of(stream_of_thread(there.device()));
  const bool reads = to.is_cpu();
  // A blocking copy has read its source when it returns. A driver also copies memory that is not
  // pinned before it returns.
  const bool is_read_now = from.is_cpu() && !(non_blocking && from.is_pinned());
  const at::Tensor source = is_read_now ? from.clone() : from;
  const std::uint64_t point = queue.push([source = near(source), target = near(to)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    target.copy_(source);
  });
  if (!reads) {
    if (is_read_now) note_wait("copy from the host");
    return to;
  }
  if (non_blocking && to.is_pinned()) return to;
  if (operators_on_copies == 0) blocking_read_count += 1;
  note_wait(name_of_reads);
  queue.run_to(point);
  return to;
}

// Only counts. The queues hold the tensors that they use, so the allocator needs no such call.
void record_stream(at::Tensor&, at::Stream) { ++recorded_stream_count; }

// Makes Module::to() move parameters in place, as between a CPU and a GPU.
bool has_compatible_type(const at::Tensor&, const at::Tensor&) { return true; }

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return to.copy_(from);
}

at::Scalar local_scalar(const at::Tensor& self) {
  const char* const before = std::exchange(name_of_reads, "item");
  const at::Tensor value = self.cpu();
  name_of_reads = before;
  return value.item();
}

// Whether the operator returns its result, or the shape of its result, to the host.
bool reads_on_host(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::nonzero",    "aten::masked_select",      "aten::equal",   "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};
  return names.contains(name);
}

void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (reads_on_host(op.schema().name())) note_wait(op.schema().name());
  const OperatorOnCopies on_copies;
  at::native::cpu_fallback(op, stack);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  const OperatorOnCopies on_copies;
  const std::optional<at::Tensor> near_bias =
      bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
  return at::convolution(input.cpu(), weight.cpu(), near_bias, stride, padding, dilation,
                         transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> mask) {
  const OperatorOnCopies on_copies;
  const std::int64_t channels = weight.size(0);
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(gradient.cpu(), input.cpu(), weight.cpu(), at::IntArrayRef(channels),
                               stride, padding, dilation, transposed, output_padding, groups, mask);
  const auto there = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(input.device()) : tensor;
  };
  return {there(of_input), there(of_weight), there(of_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("view", &view);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_type);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record_stream);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m){
    KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp) KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
        KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)} TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1,
                                                                             library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
}

void install() {
  static const bool installed = [] {
    static FarAllocator allocator;
    static FarGuard guard;
    c10::SetAllocator(kType, &allocator);
    at::setHostAllocator(kType, &pinned_allocator());
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kType)].store(&guard);
    at::RegisterPrivateUse1HooksInterface(new FarHooks());
    c10::register_privateuse1_backend("far");
    return true;
  }();
  (void)installed;
}

torch::Device device(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }
std::int64_t blocking_reads() { return blocking_read_count; }
std::vector<std::string> waits() {
  const std::scoped_lock lock(waits_mutex);
  return all_waits;
}
std::int64_t recorded_streams() { return recorded_stream_count; }
int current_device() { return current_index; }
c10::Stream new_stream(int index) {
  return c10::impl::VirtualGuardImpl(kType).getNewStream(device(index), 0);
}

void move_to(torch::nn::Module& module, torch::Device device) {
  struct Metadata : c10::TensorImpl {
    static void copy(const at::Tensor& from, const at::Tensor& to) {
      copy_tensor_metadata(from.unsafeGetTensorImpl(), to.unsafeGetTensorImpl(),
                           to.unsafeGetTensorImpl()->version_counter(),
                           /*allow_tensor_metadata_change=*/true);
    }
  };
  for (const auto& tensors : {module.parameters(), module.buffers()}) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.device() != device) Metadata::copy(tensor.detach().to(device), tensor);
    }
  }
}

Hold::Hold() { ++holds; }
Hold::~Hold() { --holds; }

}  // namespace lockstep::testing_support::far_device
