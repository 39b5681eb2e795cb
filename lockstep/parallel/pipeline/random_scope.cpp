#include <lockstep/parallel/pipeline/random_scope.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <map>
#include <mutex>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>

namespace lockstep::pipeline {
namespace {

// A separate mutex, because every operation that draws locks the generator's own. The index is
// required because two names of one device, such as "cuda" and "cuda:0", would get two mutexes.
std::mutex& turn_of(torch::Device device) {
  LOCKSTEP_CHECK(device.is_cpu() || device.has_index(), device, ": the device has no index");
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, int>, std::mutex> turns;
  const std::scoped_lock lock(mutex);
  return turns[{device.type(), device.is_cpu() ? 0 : device.index()}];
}

at::Generator default_generator(torch::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

}  // namespace

class RandomScope::Turn {
 public:
  Turn(torch::Device device, std::uint64_t seed)
      : is_cpu_(device.is_cpu()), generator_(default_generator(device)), turn_(turn_of(device)) {
    const std::scoped_lock lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
    seeded_ = generator_.get_state();
  }
  ~Turn() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(before_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool drawn() {
    const std::scoped_lock lock(generator_.mutex());
    return !generator_.get_state().equal(seeded_);
  }
  bool is_cpu() const { return is_cpu_; }

 private:
  const bool is_cpu_;
  at::Generator generator_;
  const std::unique_lock<std::mutex> turn_;
  torch::Tensor before_;
  torch::Tensor seeded_;
};

std::uint64_t micro_batch_seed(std::uint64_t step_seed, int stage, int micro_batch) {
  const auto bits = philox4x32(
      {static_cast<std::uint32_t>(stage), static_cast<std::uint32_t>(micro_batch), 0, 0},
      {static_cast<std::uint32_t>(step_seed), static_cast<std::uint32_t>(step_seed >> 32)});
  return (std::uint64_t{bits[1]} << 32) | bits[0];
}

// All scopes lock in this order; otherwise two of them could deadlock.
RandomScope::RandomScope(torch::Device device, Generators generators, std::uint64_t seed) {
  if (generators.cpu) turns_.push_back(std::make_unique<Turn>(torch::Device(torch::kCPU), seed));
  if (generators.device && !device.is_cpu()) turns_.push_back(std::make_unique<Turn>(device, seed));
}

RandomScope::~RandomScope() = default;

Generators RandomScope::drawn() const {
  Generators drawn;
  for (const auto& turn : turns_) {
    if (turn->drawn()) (turn->is_cpu() ? drawn.cpu : drawn.device) = true;
  }
  return drawn;
}

}  // namespace lockstep::pipeline
