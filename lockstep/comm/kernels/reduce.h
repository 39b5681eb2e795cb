// Combining the same elements of several buffers: the arithmetic of every reduction.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>

namespace lockstep {

/// Whether `op` is defined for `type`: no average of integers, no bitwise operation of floats,
/// nothing of kByte. Empty if so, else the reason: "the average of int64 is not defined".
std::string why_not_reducible(DataType type, ReduceOp op);

/// For each i in [0, count): x = sources[0][i] op sources[1][i] op ..., in that order; stored to
/// destinations[d][i] for every d. The average is the sum times 1 / number of sources. float16 and
/// bfloat16 are combined in float32 and rounded once, to nearest even; integers wrap around; of
/// equal minima (the two zeros) the first stays. Sources may be destinations (the same address;
/// partly overlapping ones may not); no alignment is needed. Uses the widest SIMD of the processor,
/// with the same results, bit for bit, as the scalar loop, but for which NaN a NaN is.
/// InternalError without sources, or if why_not_reducible().
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, DataType type, ReduceOp op);

/// data[i] *= factor, rounded once. Floating-point types only.
void scale(std::byte* data, std::size_t count, DataType type, double factor);

/// Index of the first NaN in data[0 .. count), or `count` where there is none (also for types that
/// have no NaN). Runs at memory speed.
std::size_t find_nan(const std::byte* data, std::size_t count, DataType type);

}  // namespace lockstep
