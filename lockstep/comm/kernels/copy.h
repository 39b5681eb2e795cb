// Copying to where nobody reads soon.
#pragma once

#include <cstddef>

namespace lockstep {

/// std::memcpy that writes past the caches. An ordinary store first reads the line that it writes;
/// into a large destination that is in no cache this saves that third of the traffic and leaves the
/// caches to others (1.5 times as fast from cached slots into 25 MiB; several times slower where
/// the destination is cached already: see benchmarks/reduce.cpp). Any alignment; the two may not
/// overlap. The writes come before every later store of this thread, as after memcpy.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace lockstep
