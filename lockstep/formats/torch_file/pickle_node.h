// A value while its pickle is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>

#include <lockstep/core/error.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::torch_file {

/// What keys a dictionary has so far. The texts are those of its key nodes.
struct PickleKeys {
  std::set<std::string_view> texts{};
  std::set<std::int64_t> numbers{};
};

struct PickleNode : PickleValue {
  std::uint64_t weight = 1;  ///< the values in it, itself included, each as often as it occurs
  int depth = 0;             ///< of the containers in it
  /// In another value. A container must not change from then on: so none comes to contain itself,
  /// and weight and depth stay true.
  bool is_part = false;
  bool is_ordered_dict = false;
  std::unique_ptr<PickleKeys> keys{};
};

using PickleNodeRef = std::shared_ptr<PickleNode>;

/// Where in which pickle something is wrong.
struct PicklePlace {
  std::string_view name{};
  std::size_t byte = 0;

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name, ": byte ", byte, ": ", values...));
  }
};

/// The kind of a value in a message: "a text", "a tensor", ...
const char* kind_of(const PickleValue& value);

}  // namespace lockstep::torch_file
