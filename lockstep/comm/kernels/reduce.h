// Element-wise reduction of several buffers: the arithmetic of every reducing collective.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>

namespace lockstep::comm {

/// Why `op` is not defined for `type`, as in "the average of int64 is not defined"; empty if it is
/// defined. Averages of integers, bitwise operations on floats, and all operations on kByte are
/// undefined.
std::string why_not_reducible(detail::DataType type, ReduceOp op);

/// For each i in [0, count): x = sources[0][i] op sources[1][i] op ..., in that order; stored to
/// destinations[d][i] for every d. The average is the sum times 1 / number of sources. float16 and
/// bfloat16 are combined in float32 and rounded once, to nearest even; integers wrap around; if
/// minima are equal (the two zeros), the first is kept. A source may also be a destination (at the
/// same address; partial overlap is not allowed); no alignment is needed. Uses the widest SIMD of
/// the processor; results are bit-identical to the scalar loop, except for the bits of a NaN.
/// Throws InternalError if there are no sources, or if why_not_reducible() gives a reason.
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, detail::DataType type, ReduceOp op);

/// Computes data[i] *= factor, rounded once. Floating-point types only.
void scale(std::byte* data, std::size_t count, detail::DataType type, double factor);

/// Index of the first NaN in data[0 .. count), or `count` if there is none (also for types without
/// NaN). Runs at memory speed.
std::size_t find_nan(const std::byte* data, std::size_t count, detail::DataType type);

}  // namespace lockstep::comm
