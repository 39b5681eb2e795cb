// CRC-32C, the checksum of TensorBoard's event files: finds damage, no defence against forgery.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// The CRC of `bytes` by Castagnoli's polynomial (RFC 3720): 0xE3069283 of "123456789".
std::uint32_t crc32c(std::string_view bytes);

/// crc32c() turned right by 15 bits plus 0xA282EAD8, as TensorFlow's record files keep it: the CRC
/// of bytes that hold their own CRC says nothing.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
