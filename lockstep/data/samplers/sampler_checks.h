// Helpers that only the samplers' files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::data {

/// Throws a ConfigError that begins with `owner` if `rank` is not from 0 to `world_size` - 1, or
/// `dataset_size` is negative.
void check_place(const char* owner, std::int64_t dataset_size, int rank, int world_size);

/// A short hash of long options for describe(): FNV-1a, 64 bits.
/// Source: http://www.isthe.com/chongo/tech/comp/fnv
std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace lockstep::data
