// The representation of a value while its pickle is being read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>

#include <lockstep/core/error.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::torch_file {

/// The keys of a dictionary that have been read so far. `texts` are views into its key nodes.
struct PickleKeys {
  std::set<std::string_view> texts{};
  std::set<std::int64_t> numbers{};
};

struct PickleNode : PickleValue {
  std::uint64_t weight = 1;  ///< number of values in it, including itself and repetitions
  int depth = 0;             ///< nesting depth of the containers in it
  /// Whether the value is part of another value. A container that is must not change any more: this
  /// prevents cycles, and keeps weight and depth correct.
  bool is_part = false;
  bool is_ordered_dict = false;
  std::unique_ptr<PickleKeys> keys{};
};

using PickleNodeRef = std::shared_ptr<PickleNode>;

/// A pickle's name and a position in it, for error messages.
struct PicklePlace {
  std::string_view name{};
  std::size_t byte = 0;

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name, ": byte ", byte, ": ", values...));
  }
};

/// The kind of a value for messages: "a text", "a tensor", ...
const char* kind_of(const PickleValue& value);

}  // namespace lockstep::torch_file
