// Ranks on GPUs: a process for each rank, on as many GPUs as the machine has.
//
// Rank r computes on GPU r modulo the number of GPUs. If there are fewer GPUs than ranks, each rank
// gets the settings of `lockstep run --share-gpu`, so that one GPU is enough for every test. The
// ranks are processes because two ranks' backward passes on one GPU would share its autograd
// thread. CUDA does not survive a fork, so that the process that forks the ranks must not have used
// it: only the ranks look for GPUs.
//
// tests/gpu/CMakeLists.txt finds the tests of several ranks by their include of this file.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <lockstep/comm/backends/nccl/gpu_sharing.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/support/groups.h>
#include <tests/support/ranks.h>

namespace lockstep::testing_support {

/// Why a test of ranks on GPUs is skipped where there is no GPU, or no NCCL.
inline constexpr const char* kNeedsGpuAndNccl =
    "needs a GPU, and a test program with NCCL (from the CUDA build)";

/// How many groups a process of run_on_gpus() may join one after the other.
inline constexpr std::size_t kGpuGroups = 2;

/// A group over NCCL, whose waits end before the limit of the test.
inline ProcessGroupOptions nccl_options() {
  return {.backend = "nccl", .timeout = std::chrono::seconds(25)};
}

/// The number and the GPU of a rank.
struct GpuRank {
  int rank = 0;
  int size = 1;
  torch::Device device = torch::kCPU;
  std::array<int, kGpuGroups> sockets{};  ///< listening, one for each group

  bool is_last() const { return rank == size - 1; }

  /// Collective. Joins a group of all ranks whose device is this rank's. Call it at most once for
  /// each number from 0 to kGpuGroups - 1.
  ProcessGroup join(ProcessGroupOptions options = nccl_options(), std::size_t number = 0) const {
    options.device = device;
    options.environment = environment_of(rank, size, sockets[number]);
    return init_process_group(options);
  }

  /// Waits until the device has ended all work of this process.
  void synchronize() const { torch::cuda::synchronize(device.index()); }
};

/// Chooses the GPU of a rank and prepares its process. Returns why this machine cannot have the
/// rank; empty if it can.
inline std::string prepare_gpu_rank(GpuRank& place) {
  at::set_num_threads(1);
  if (!nccl_available() || !torch::cuda::is_available()) return kNeedsGpuAndNccl;
  const int devices = static_cast<int>(torch::cuda::device_count());
  place.device = {torch::kCUDA, static_cast<c10::DeviceIndex>(place.rank % devices)};
  // The results are compared with those of a CPU, from which TF32 would differ too much.
  at::globalContext().setAllowTF32CuDNN(false);
  if (devices >= place.size) return "";
  const auto sharing = nccl::gpu_sharing(nccl::loaded_version());
  if (!sharing) return str("needs ", place.size, " GPUs, or NCCL 2.28 or newer, to share them");
  nccl::share_gpu(*sharing, place.rank, /*one_host=*/true);
  return "";
}

/// What became of the ranks of a test.
struct GpuRanksOutcome {
  std::vector<std::string> errors;  ///< as run_processes() returns them
  std::string why_skipped;          ///< why the ranks did nothing; empty if they ran
};

/// The limit of a test with `size` ranks. Starting a process on a GPU takes seconds, and the ranks
/// of one GPU take turns.
inline std::chrono::seconds limit_of_gpu_ranks(int size) {
  return std::chrono::seconds(25 + 3 * size);
}

/// Calls `body` in one process per rank. The ranks have not joined a group.
inline GpuRanksOutcome run_on_gpus(int size, const std::function<void(const GpuRank&)>& body) {
  if (!nccl_available()) return {.errors = {}, .why_skipped = kNeedsGpuAndNccl};  // forks nothing
  std::array<int, kGpuGroups> sockets{};
  for (int& each : sockets) each = comm::listen_on("127.0.0.1", 0);
  static constexpr const char* kSkipped = "skipped: ";
  auto errors = run_processes(
      size,
      [&](int rank) {
        GpuRank place{.rank = rank, .size = size, .device = torch::kCPU, .sockets = sockets};
        const std::string why_not = prepare_gpu_rank(place);
        if (!why_not.empty()) throw Error(kSkipped + why_not);
        body(place);
      },
      limit_of_gpu_ranks(size));
  for (const int each : sockets) close(each);
  const auto was_skipped = [](const std::string& error) { return error.starts_with(kSkipped); };
  if (!std::all_of(errors.begin(), errors.end(), was_skipped)) return {std::move(errors), ""};
  return {{}, errors.front().substr(std::string(kSkipped).size())};
}

/// Calls `body` with each rank's group. A rank that fails ends the group, so that the others do not
/// wait for it.
inline GpuRanksOutcome run_group_on_gpus(
    int size, const std::function<void(ProcessGroup, torch::Device)>& body,
    const ProcessGroupOptions& options = nccl_options()) {
  return run_on_gpus(size, [&](const GpuRank& place) {
    ProcessGroup group = place.join(options);
    try {
      body(group, place.device);
      group.barrier();  // no rank leaves while another one needs it
    } catch (const std::exception& error) {
      group.abort(error.what());
      throw;
    }
  });
}

/// What a test does on each rank, and its name in errors.
struct GpuCheck {
  const char* name;
  std::function<void(ProcessGroup, torch::Device)> run;
};

/// A test with a number of ranks.
class OnGpus : public testing::TestWithParam<int> {
 protected:
  /// Expects that `body` succeeds on all ranks. Skips the test, with the reason, where it cannot
  /// run. Call it last.
  static void expect_success(const std::function<void(ProcessGroup, torch::Device)>& body,
                             const ProcessGroupOptions& options = nccl_options()) {
    const GpuRanksOutcome outcome = run_group_on_gpus(GetParam(), body, options);
    if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
    EXPECT_EQ(outcome.errors, no_errors(GetParam()));
  }

  /// Like expect_success(), with several checks in the same processes, because starting these takes
  /// longer than most checks.
  static void expect_success(const std::vector<GpuCheck>& checks) {
    expect_success([&](const ProcessGroup& group, torch::Device gpu) {
      for (const GpuCheck& check : checks) {
        try {
          check.run(group, gpu);
        } catch (const std::exception& error) {
          throw Error(str(check.name, ": ", error.what()));
        }
      }
    });
  }
};

/// The numbers of ranks of most tests, and those of tests that need a peer.
inline const auto kOneToEightRanks = testing::Values(1, 2, 4, 8);
inline const auto kTwoToEightRanks = testing::Values(2, 4, 8);

inline std::string name_of_ranks(const testing::TestParamInfo<int>& info) {
  return str(info.param, noun_for(info.param, "rank"));
}

}  // namespace lockstep::testing_support
