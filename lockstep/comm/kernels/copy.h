// Copying into memory that will not be read soon.
#pragma once

#include <cstddef>

namespace lockstep::comm {

/// Like std::memcpy, but the stores bypass the caches. An ordinary store first reads the cache line
/// that it writes. For a large uncached destination, bypassing the caches saves this read, a third
/// of the memory traffic, and evicts nothing (1.5 times as fast from cached slots into 25 MiB). For
/// a cached destination it is several times slower: see benchmarks/ours/reduce.cpp. Any alignment
/// is allowed; source and destination must not overlap. The writes are ordered before every later
/// store of this thread, as after memcpy.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace lockstep::comm
