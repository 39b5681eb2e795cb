// CRC-32C, the checksum of TensorBoard's event files. It detects damage, but does not protect
// against forgery.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::formats {

/// The CRC of `bytes` by Castagnoli's polynomial (RFC 3720); for "123456789" it is 0xE3069283.
std::uint32_t crc32c(std::string_view bytes);

/// crc32c() rotated right by 15 bits plus 0xA282EAD8, as TensorFlow's record files store it: the
/// plain CRC of bytes that contain their own CRC is not meaningful.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::formats
