// The fuzz targets of the room program; see tests/formats/fuzz/targets.h.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::testing_support {

/// Each function returns whether the parser accepted the bytes.
bool fuzz_exported_graph(std::span<const std::byte> bytes);
bool fuzz_pt2_file(std::span<const std::byte> bytes);
bool fuzz_size_expression(std::span<const std::byte> bytes);

}  // namespace lockstep::testing_support
