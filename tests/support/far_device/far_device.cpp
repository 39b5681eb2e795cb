#include <tests/support/far_device/far_device.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <tests/support/far_device/memory.h>
#include <tests/support/far_device/operators.h>
#include <tests/support/far_device/streams.h>
#include <tests/support/far_device/waits.h>

namespace lockstep::testing_support::far_device {
namespace {

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
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
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

}  // namespace

void install() {
  static const bool installed = [] {
    c10::SetAllocator(kType, &far_allocator());
    at::setHostAllocator(kType, &pinned_allocator());
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kType)].store(&far_guard());
    at::RegisterPrivateUse1HooksInterface(new FarHooks());
    c10::register_privateuse1_backend("far");
    register_operators();
    return true;
  }();
  (void)installed;
}

torch::Device device(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }
std::vector<std::string> waits() {
  const std::scoped_lock lock(waits_mutex);
  return all_waits;
}
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
