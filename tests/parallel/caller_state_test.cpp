// What the threads of a team inherit from their caller. The GPUs here have a device type that only
// this test registers, so that streams can be observed on any machine.
#include <lockstep/parallel/base/caller_state.h>

#include <map>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <lockstep/parallel/base/thread_team.h>

namespace lockstep::parallel {
namespace {

constexpr auto kNoGpu = c10::DeviceType::FPGA;

torch::Device no_gpu(int index) { return {kNoGpu, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream numbered_stream(int device, int number) {
  return c10::Stream(c10::Stream::UNSAFE, no_gpu(device), number);
}

// A current device and current streams for each thread, as with CUDA.
class NoGpuGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kNoGpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return std::exchange(current(), device);
  }
  c10::Device getDevice() const override { return current(); }
  void setDevice(c10::Device device) const override { current() = device; }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current() = device; }
  c10::Stream getStream(c10::Device device) const override {
    return numbered_stream(device.index(), numbers()[device.index()]);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream former = getStream(stream.device());
    numbers()[stream.device_index()] = static_cast<int>(stream.id());
    return former;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 4; }

 private:
  static c10::Device& current() {
    thread_local c10::Device device = no_gpu(0);
    return device;
  }
  static std::map<int, int>& numbers() {
    thread_local std::map<int, int> of_devices;
    return of_devices;
  }
};

const NoGpuGuard& no_gpu_guard() {
  static const auto* const instance = new NoGpuGuard();  // LibTorch never releases it
  static const c10::impl::DeviceGuardImplRegistrar registered(kNoGpu, instance);
  return *instance;
}

TEST(CallerState, CarriesTheStreamsOfTheTeamAndOfOtherDevices) {
  for (int device = 0; device < 4; ++device) {
    no_gpu_guard().exchangeStream(numbered_stream(device, 7 + device));
  }
  const std::vector<torch::Device> devices = {no_gpu(1), no_gpu(0), no_gpu(1)};
  const CallerState caller(devices, {no_gpu(3), torch::kCPU, no_gpu(0)});
  detail::ThreadTeam team({"a", "b", "c"});
  std::vector<std::vector<c10::Stream>> inside(3), afterwards(3);
  std::vector<torch::Device> current(3, torch::kCPU);
  team.run([&](std::size_t member) {
    {
      const CallerState::Scope scope(caller, member);
      current[member] = no_gpu_guard().getDevice();
      for (int device = 0; device < 4; ++device) {
        inside[member].push_back(no_gpu_guard().getStream(no_gpu(device)));
      }
    }
    for (int device = 0; device < 4; ++device) {
      afterwards[member].push_back(no_gpu_guard().getStream(no_gpu(device)));
    }
  });
  EXPECT_EQ(current, devices);
  for (std::size_t member = 0; member < 3; ++member) {
    for (const int device : {0, 1, 3}) {
      EXPECT_EQ(inside[member][static_cast<std::size_t>(device)],
                numbered_stream(device, 7 + device));
    }
    EXPECT_EQ(inside[member][2], numbered_stream(2, 0)) << "nobody asked for this one";
    for (int device = 0; device < 4; ++device) {
      EXPECT_EQ(afterwards[member][static_cast<std::size_t>(device)], numbered_stream(device, 0));
    }
  }
}

TEST(CallerState, CarriesWhatAutocastKeepsForAThread) {
  const detail::AutocastTypeScope half(at::kCPU, torch::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  const std::vector<torch::Device> devices = {torch::kCPU};
  const CallerState caller(devices);
  at::autocast::set_autocast_cache_enabled(true);
  detail::ThreadTeam team({"a"});
  team.run([&](std::size_t member) {
    const CallerState::Scope scope(caller, member);
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), torch::kHalf);
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
  });
}

}  // namespace
}  // namespace lockstep::parallel
