// Decompresses gzip data (RFC 1952): a whole buffer at once, up to a size limit, with libdeflate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep::formats {

/// Uninitialized bytes on the heap. Zeroing them first would cost as much time as reading a data
/// set. Move-only; the bytes live as long as the object.
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

/// Whether `bytes` begins with gzip's magic number.
bool is_gzip(std::span<const std::byte> bytes);

/// The size of the decompressed content (modulo 2^32) according to the trailer of `compressed`.
/// Only gunzip() verifies this number. Throws a DataError if `compressed` is not gzip or too short
/// for a trailer.
std::uint32_t gzip_stated_bytes(std::span<const std::byte> compressed, std::string_view name);

/// The decompressed content of `compressed`, which must be exactly one gzip member. `name` is the
/// file's name for error messages.
///
/// Throws a DataError if `compressed` is not gzip, is truncated or damaged (the checksum is
/// verified), has bytes after its end, states a wrong size, or would exceed `maximum_bytes`. Before
/// memory is allocated, the size in the trailer is checked against the most that deflate can
/// produce from this input.
ByteBuffer gunzip(std::span<const std::byte> compressed, std::size_t maximum_bytes,
                  std::string_view name);

}  // namespace lockstep::formats
