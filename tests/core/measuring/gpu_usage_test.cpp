// Runs with a stand-in for the driver's library, in the folder LOCKSTEP_MODULE_DIR. Each case runs
// in a separate process, because the library is opened only once.
#include <lockstep/core/measuring/gpu_usage.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class GpuUsageTest : public ::testing::Test {
 protected:
  // Expects `holds` in a process with these variables set; nullptr unsets a variable.
  static void expect_in_process(const char* folder, const char* visible,
                                const std::function<bool()>& holds) {
    EXPECT_EXIT(
        {
          setenv("LOCKSTEP_MODULE_DIR", folder, 1);
          if (visible == nullptr) {
            unsetenv("CUDA_VISIBLE_DEVICES");
          } else {
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
          }
          std::_Exit(holds() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
};

TEST_F(GpuUsageTest, ReadsWhatTheDriverTells) {
  expect_in_process(NVML_FOLDER, nullptr, [] {
    const std::optional<GpuUsage> first = gpu_usage(0);
    const std::optional<GpuUsage> second = gpu_usage(1);
    return count_visible_gpus() == 2 && first && second && first->utilisation == 0.8 &&
           first->memory_utilisation == 0.2 && first->memory_bytes == std::int64_t{20} << 30 &&
           first->power_watts == 350.5 && second->utilisation == 0.4 && second->power_watts == 0 &&
           !gpu_usage(2) && !gpu_usage(-1);
  });
}

TEST_F(GpuUsageTest, CountsAsCudaDoes) {
  const auto shows = [](int count) { return [count] { return count_visible_gpus() == count; }; };
  expect_in_process(NVML_FOLDER, "1", [] {
    return count_visible_gpus() == 1 && gpu_usage(0)->utilisation == 0.4 && !gpu_usage(1);
  });
  expect_in_process(NVML_FOLDER, "GPU-second,0", [] {
    return count_visible_gpus() == 2 && gpu_usage(0)->utilisation == 0.4 &&
           gpu_usage(1)->utilisation == 0.8;
  });
  expect_in_process(NVML_FOLDER, "", shows(0));
  expect_in_process(NVML_FOLDER, "-1", shows(0));
  expect_in_process(NVML_FOLDER, "0,-1,1", shows(1));  // the first invalid number hides the rest
  expect_in_process(NVML_FOLDER, "0,7", shows(1));
}

TEST_F(GpuUsageTest, KnowsTheNearestProcessors) {
  expect_in_process(NVML_FOLDER, "1,0", [] {
    return cpus_near_gpu(0) == std::vector<int>{1, 64} && cpus_near_gpu(1) == std::vector<int>{0} &&
           cpus_near_gpu(2).empty();
  });
}

TEST_F(GpuUsageTest, FindsNothingWithoutTheDriver) {
  const auto finds_nothing = [] {
    return count_visible_gpus() == 0 && !gpu_usage(0) && cpus_near_gpu(0).empty();
  };
  setenv("LOCKSTEP_TEST_NVML_FAILS", "1", 1);
  expect_in_process(NVML_FOLDER, nullptr, finds_nothing);
  unsetenv("LOCKSTEP_TEST_NVML_FAILS");
}

// A driver may not answer a question for a GPU, while it answers the others.
TEST_F(GpuUsageTest, IsUnknownWhereTheDriverGivesNoAnswer) {
  struct Lack {
    const char* question;
    int gpus;
    bool has_usage;
    bool has_cpus;
  };
  const Lack lacks[] = {{"nothing", 2, true, true},
                        {"count", 0, false, false},
                        {"utilization", 2, false, true},
                        {"memory", 2, false, true},
                        {"affinity", 2, true, false}};
  for (const Lack& lack : lacks) {
    SCOPED_TRACE(lack.question);
    setenv("LOCKSTEP_TEST_NVML_LACKS", lack.question, 1);
    expect_in_process(NVML_FOLDER, nullptr, [&] {
      return count_visible_gpus() == lack.gpus && gpu_usage(0).has_value() == lack.has_usage &&
             cpus_near_gpu(0).empty() != lack.has_cpus;
    });
  }
  unsetenv("LOCKSTEP_TEST_NVML_LACKS");
}

}  // namespace
}  // namespace lockstep
