#include <lockstep/data/samplers/sampler_checks.h>

#include <lockstep/core/options.h>

namespace lockstep::data {

void check_place(const char* owner, std::int64_t dataset_size, int rank, int world_size) {
  const OptionCheck check(owner);
  check.at_least("dataset_size", static_cast<double>(dataset_size), 0);
  check.at_least("world_size", world_size, 1);
  check.in_range("rank", rank, 0, world_size - 1);
}

std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
  }
  return hash;
}

}  // namespace lockstep::data
