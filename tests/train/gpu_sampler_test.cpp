#include <lockstep/train/measuring/gpu_sampler.h>

#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

// Uses the NVML stand-in of the core's tests.
TEST(GpuSampler, AveragesOverSamplesAndDevices) {
  setenv("LOCKSTEP_MODULE_DIR", NVML_FOLDER, 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  GpuSampler sampler({0, 1}, Milliseconds(1));
  const Deadline deadline(Milliseconds(60000));
  const auto next_mean = [&] {
    while (!sampler.mean() && !deadline.expired()) std::this_thread::yield();
    return sampler.mean();
  };
  const std::optional<GpuUsage> mean = next_mean();
  ASSERT_TRUE(mean);
  // 0.8 while only the first device has been read, 0.6 when both have.
  EXPECT_GE(mean->utilisation, 0.6 - 1e-9);
  EXPECT_LE(mean->utilisation, 0.8 + 1e-9);
  EXPECT_GE(mean->memory_bytes, std::int64_t{15} << 30);
  EXPECT_GE(mean->power_watts, 350.5 / 2 - 1e-9);
  sampler.reset();
  EXPECT_TRUE(next_mean());
  {
    const GpuSampler::Pause pause(&sampler);
    sampler.reset();
    std::this_thread::sleep_for(Milliseconds(20));
    EXPECT_FALSE(sampler.mean());
  }
  EXPECT_TRUE(next_mean());
}

TEST(GpuSampler, HasNoMeanWithoutGpus) {
  GpuSampler none({}, Milliseconds(1));
  EXPECT_FALSE(none.mean());
  GpuSampler unknown({1000}, Milliseconds(1));
  std::this_thread::sleep_for(Milliseconds(5));
  EXPECT_FALSE(unknown.mean());
}

}  // namespace
}  // namespace lockstep::train
