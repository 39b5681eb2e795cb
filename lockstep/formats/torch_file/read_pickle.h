// Reads Python's pickle format without executing anything (pickle.h).
//
//   const Pickle pickle = read_pickle(bytes, "data.pkl");
//   for (const auto& [key, value] : std::get<PickleDict>(pickle.value->content).items) ...
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <lockstep/formats/pickle.h>

namespace lockstep::torch_file {

struct Pickle {
  PickleRef value{};
  std::size_t bytes = 0;  ///< length of the pickle at the beginning of the input
};

/// The deepest permitted nesting of containers.
inline constexpr int kMaximumPickleDepth = 100;
/// The largest permitted number of values in a pickle. Each takes about 200 bytes of memory.
inline constexpr std::size_t kMaximumPickleValues = 2'000'000;

/// Returns the value of the pickle at the beginning of `bytes`. Throws a CheckpointError that
/// begins with `name` and the position of the byte if the pickle is damaged, has unknown parts,
/// exceeds the limits above, or has a value that contains itself. Also throws it if the pickle
/// would have more than 16 values per byte once all shared parts were written out; this bounds the
/// time to walk over the value of a small malicious file. Texts are UTF-8. Memory is proportional
/// to the bytes.
Pickle read_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::torch_file
