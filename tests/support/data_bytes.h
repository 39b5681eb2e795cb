// Builds small, valid files in the formats of data sets. Tests use them, or corrupt them first.
#pragma once

#include <libdeflate.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::testing_support {

/// Compresses `content` into one gzip member.
inline std::string gzip(std::string_view content) {
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(6);
  std::string result(libdeflate_gzip_compress_bound(compressor, content.size()), '\0');
  const std::size_t size = libdeflate_gzip_compress(compressor, content.data(), content.size(),
                                                    result.data(), result.size());
  libdeflate_free_compressor(compressor);
  if (size == 0) throw std::runtime_error("gzip failed");
  result.resize(size);
  return result;
}

inline std::string big_endian(std::initializer_list<std::uint32_t> values) {
  std::string result;
  for (const std::uint32_t value : values) {
    for (int shift = 24; shift >= 0; shift -= 8)
      result.push_back(static_cast<char>(value >> shift));
  }
  return result;
}

inline std::string little_endian_64(std::uint64_t value) {
  std::string result;
  for (int shift = 0; shift < 64; shift += 8) result.push_back(static_cast<char>(value >> shift));
  return result;
}

/// `count` bytes that differ from their neighbours. Equal in each call.
inline std::string pattern(std::size_t count, unsigned factor = 37) {
  std::string result(count, '\0');
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<char>(i * factor + i / 251);
  return result;
}

inline std::string idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  return big_endian({0x803, count, height, width}) + pattern(std::size_t{count} * height * width);
}

/// Labels 0, 1, ... 9, 0, ...
inline std::string idx_labels(std::uint32_t count) {
  std::string result = big_endian({0x801, count});
  for (std::uint32_t i = 0; i < count; ++i) result.push_back(static_cast<char>(i % 10));
  return result;
}

/// A file of numpy.save with the dict `header`, or the usual one for an array of this type and
/// shape.
inline std::string npy_file(const std::string& header, std::string_view data) {
  const auto length = static_cast<std::uint32_t>(header.size());
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(length & 0xff) +
         static_cast<char>(length >> 8) + header + std::string(data);
}
inline std::string npy_array(const std::string& type, const std::string& shape,
                             std::string_view data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');  // the data begins at a multiple
  return npy_file(header + '\n', data);
}

/// CIFAR-10 records with labels 0, 1, ... 9, 0, ...
inline std::string cifar_records(std::size_t count) {
  std::string result = pattern(count * 3073);
  for (std::size_t i = 0; i < count; ++i) result[i * 3073] = static_cast<char>(i % 10);
  return result;
}

/// CIFAR-100 records with coarse labels 0, 1, ... 19, 0, ... and fine ones 99, 98, ... 0, 99, ...
inline std::string cifar100_records(std::size_t count) {
  std::string result = pattern(count * 3074);
  for (std::size_t i = 0; i < count; ++i) {
    result[i * 3074] = static_cast<char>(i % 20);
    result[i * 3074 + 1] = static_cast<char>(99 - i % 100);
  }
  return result;
}

inline std::string safetensors(std::string_view header, std::string_view data = "") {
  return little_endian_64(header.size()) + std::string(header) + std::string(data);
}

}  // namespace lockstep::testing_support
