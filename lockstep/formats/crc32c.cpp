#include <lockstep/formats/crc32c.h>

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace lockstep::formats {

std::uint32_t crc32c(std::string_view bytes) {
  // ISA-L takes the length as an int, and older versions take a non-const pointer.
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  std::uint32_t crc = 0xFFFFFFFF;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, std::min(bytes.size(), kPiece));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    crc = crc32_iscsi(data, static_cast<int>(piece.size()), crc);
    bytes.remove_prefix(piece.size());
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

}  // namespace lockstep::formats
