// XXH3 of 64 bits: finds damage, at the speed of memory. No defence against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// XXH3_64bits of `bytes`; of none it is not 0.
std::uint64_t checksum(std::span<const std::byte> bytes);

/// The checksum of pieces that come one after the other.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
