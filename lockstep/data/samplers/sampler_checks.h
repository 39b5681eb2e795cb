// What the samplers' files share and nobody else needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// ConfigError, beginning with `owner`, unless the rank is in the world and the size not negative.
void check_place(const char* owner, std::int64_t dataset_size, int rank, int world_size);

/// A name for long options in describe(): FNV-1a, 64 bits.
/// Source: http://www.isthe.com/chongo/tech/comp/fnv
std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace lockstep
