// Reads the fields of a query from the bytes received so far.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tcp_store {

/// The query has not arrived completely yet.
class Incomplete : public std::exception {};

/// The bytes received do not follow the store's protocol.
class Malformed : public std::exception {};

/// Throws Incomplete if bytes are missing and Malformed if a field is longer than a store accepts.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class Value>
  Value read() {
    Value value;
    const std::string_view bytes = take(sizeof(value));
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string read_text() { return std::string(take(length(kLongestText))); }
  std::vector<std::string> read_texts() {
    const std::uint64_t count = length(kMostTexts);
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < count; ++i) texts.push_back(read_text());
    return texts;
  }
  /// The texts of a list of pairs.
  std::vector<std::string> read_pairs() {
    const std::uint64_t count = 2 * length(kMostTexts);
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < count; ++i) texts.push_back(read_text());
    return texts;
  }
  /// The number of bytes read.
  std::size_t position() const { return position_; }

  static constexpr std::uint64_t kLongestText = std::uint64_t{1} << 26;
  static constexpr std::uint64_t kMostTexts = std::uint64_t{1} << 17;

 private:
  std::uint64_t length(std::uint64_t most) {
    const auto length = read<std::uint64_t>();
    if (length > most) throw Malformed();
    return length;
  }
  std::string_view take(std::uint64_t size) {
    if (bytes_.size() - position_ < size) throw Incomplete();
    const auto taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }

  std::string_view bytes_;
  std::size_t position_ = 0;
};

}  // namespace lockstep::tcp_store
