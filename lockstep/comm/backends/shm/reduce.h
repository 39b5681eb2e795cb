// Adding the same elements of several ranks' buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::shm {

enum class DataType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8 };

std::size_t element_size(DataType type);
const char* data_type_name(DataType type);
bool is_floating_point(DataType type);

/// For each i in [0, count): x = sources[0][i] + sources[1][i] + ..., in that order, divided by the
/// number of sources for kAverage, and stored to destinations[d][i] for every d. float16 and bfloat16
/// are added in float32 and rounded once. Sources may be destinations. float32 and float64 use the
/// widest SIMD of the processor, with the same results as the scalar loop.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, DataType type, ReduceOp op);

}  // namespace lockstep::shm
