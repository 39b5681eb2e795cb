#include <lockstep/train/optimization/step_seed.h>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/core/philox.h>

namespace lockstep {
namespace {

void seed_generator(const at::Generator& generator, std::uint64_t seed) {
  at::Generator handle = generator;
  const std::lock_guard<std::mutex> lock(handle.mutex());
  handle.set_current_seed(seed);
}

}  // namespace

std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t step, int rank) {
  const auto bits =
      philox4x32({static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(step),
                  static_cast<std::uint32_t>(static_cast<std::uint64_t>(step) >> 32),
                  static_cast<std::uint32_t>(rank)},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (std::uint64_t{bits[1]} << 32) | bits[0];
}

void seed_generators(std::uint64_t seed, torch::Device device) {
  seed_generator(at::detail::getDefaultCPUGenerator(), seed);
  if (!device.is_cpu()) seed_generator(at::globalContext().defaultGenerator(device), seed);
}

}  // namespace lockstep
