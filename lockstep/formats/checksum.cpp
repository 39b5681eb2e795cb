#include <lockstep/formats/checksum.h>

// XXH3 is compiled in here, so nothing has to be linked or installed with the program.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::formats {

struct Checksum::State {
  XXH3_state_t xxh;
};

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace lockstep::formats
