// 64-bit XXH3. It detects damage at the speed of memory, but does not protect against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep::formats {

/// XXH3_64bits of `bytes`; for an empty span it is not 0.
std::uint64_t checksum(std::span<const std::byte> bytes);

/// The checksum of consecutive pieces.
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

}  // namespace lockstep::formats
