// Finds the end of each query in the bytes that arrive from a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::tcp_store {

/// Looks at the length of each field once, so the time for a query grows with its length, no matter
/// in how many pieces it arrives.
class QueryScanner {
 public:
  /// A query of more than `longest` bytes is malformed.
  explicit QueryScanner(std::size_t longest) : longest_(longest) {}

  /// The length of the query at the front of `bytes`; empty if it has not arrived completely. The
  /// next call must pass the same bytes and more, or the bytes after the query. Throws Malformed.
  std::optional<std::size_t> scan(std::string_view bytes);

  void allow(std::size_t longest) { longest_ = longest; }

 private:
  std::size_t longest_;
  bool begun_ = false;  // whether the members below belong to a query
  std::size_t position_ =
      0;               // place of the next length; may lie beyond the bytes that have arrived
  bool list_ = false;  // whether the next length is the number of texts
  std::uint64_t per_item_ = 0;    // texts for each item of the list
  std::uint64_t texts_left_ = 0;  // how many texts follow
  std::size_t number_bytes_ = 0;  // length of the number at the end
};

}  // namespace lockstep::tcp_store
