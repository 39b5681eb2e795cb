// gzip (RFC 1952): a whole buffer at once, bounded, by libdeflate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

/// Bytes on the heap that nobody zeroed first: for data sets, zeroing costs as much as reading.
/// Move-only; the bytes live as long as the object.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  explicit ByteBuffer(std::size_t size);

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

/// Whether `bytes` begins like a gzip member.
bool is_gzip(std::span<const std::byte> bytes);

/// The size of the content as the trailer of `compressed` states it (modulo 2^32), which gunzip()
/// verifies. DataError when it is not gzip or too short for a trailer.
std::uint32_t gzip_stated_bytes(std::span<const std::byte> compressed, std::string_view name);

/// The content of `compressed`, which must be exactly one gzip member. `name` is the file, for
/// messages.
///
/// DataError when it is not gzip, is truncated or damaged (the checksum is verified), carries bytes
/// after its end, states another size than it has, or would exceed `maximum_bytes`. What the
/// trailer claims is bounded by what deflate can produce from this input before any memory is asked
/// for.
ByteBuffer gunzip(std::span<const std::byte> compressed, std::size_t maximum_bytes,
                  std::string_view name);

}  // namespace lockstep
