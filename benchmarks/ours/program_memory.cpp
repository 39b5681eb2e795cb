// Measures how long an exported program takes to load, and the memory of its training steps, for
// program_load.py.
//
// Usage: program_memory NET.pt2 INPUTS.pt STEPS THREADS resident|allocated
//
// INPUTS.pt has the arguments by their names. The loss is the mean square of the first output, and
// the optimizer is LibTorch's SGD with momentum. Prints the seconds of loading, and by how many
// bytes memory grew beyond that of the loaded program: the process's resident memory, or what
// LibTorch's allocator for the CPU has handed out.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

// A value of /proc/self/status in bytes, such as "VmRSS:".
std::int64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == name && status >> kibibytes) return 1024 * kibibytes;
  }
  throw lockstep::DataError("/proc/self/status has no " + name);
}

// Makes the memory of now the largest so far.
void reset_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

// The bytes that the allocator has handed out and not got back since construction.
class Allocated final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*address*/, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

void train(lockstep::Program& net, const lockstep::NamedInputs& inputs, int steps) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-6).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net->forward(inputs).first_tensor().square().mean().backward();
    optimizer.step();
  }
}

void run(char** argv) {
  at::set_num_threads(std::atoi(argv[4]));
  const auto begin = lockstep::Clock::now();
  lockstep::Program net(argv[1]);
  const double loading = lockstep::seconds_since(begin);
  lockstep::NamedInputs inputs;
  for (const auto& [name, tensor] : lockstep::load_state_dict_file(argv[2])) inputs[name] = tensor;
  std::int64_t growth = 0;
  if (std::string(argv[5]) == "allocated") {
    const auto allocated = std::make_shared<Allocated>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
    train(net, inputs, std::atoi(argv[3]));
    growth = allocated->peak();
  } else {
    reset_peak();
    const std::int64_t before = memory("VmRSS:");
    train(net, inputs, std::atoi(argv[3]));
    growth = memory("VmHWM:") - before;
  }
  std::printf("%.4f %lld\n", loading, static_cast<long long>(growth));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: program_memory NET.pt2 INPUTS.pt STEPS THREADS resident|allocated\n");
    return 2;
  }
  try {
    run(argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::first_line(error).c_str());
    return 1;
  }
}
