#include <lockstep/comm/backends/shm/reduce.h>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/comm/backends/shm/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::shm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The general number of ranks; `scale` is 1 for a sum. Two ranks, by far the most frequent on small
// hosts, get a loop without inner loops.
template <class T>
void reduce_vectors(const T* const* sources, std::size_t source_count, T* const* destinations,
                    std::size_t destination_count, std::size_t count, T divisor) {
  const hn::ScalableTag<T> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const auto scale = hn::Set(tag, T{1} / divisor);
  std::size_t i = 0;
  if (source_count == 2 && destination_count == 2) {
    const T* a = sources[0];
    const T* b = sources[1];
    T* x = destinations[0];
    T* y = destinations[1];
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto low = hn::Mul(hn::Add(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i)), scale);
      const auto high = hn::Mul(
          hn::Add(hn::LoadU(tag, a + i + lanes), hn::LoadU(tag, b + i + lanes)), scale);
      hn::StoreU(low, tag, x + i);
      hn::StoreU(high, tag, x + i + lanes);
      hn::StoreU(low, tag, y + i);
      hn::StoreU(high, tag, y + i + lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    auto sum = hn::LoadU(tag, sources[0] + i);
    for (std::size_t s = 1; s < source_count; ++s) {
      sum = hn::Add(sum, hn::LoadU(tag, sources[s] + i));
    }
    sum = hn::Mul(sum, scale);
    for (std::size_t d = 0; d < destination_count; ++d) hn::StoreU(sum, tag, destinations[d] + i);
  }
  for (; i < count; ++i) {
    T sum = sources[0][i];
    for (std::size_t s = 1; s < source_count; ++s) sum += sources[s][i];
    sum *= T{1} / divisor;
    for (std::size_t d = 0; d < destination_count; ++d) destinations[d][i] = sum;
  }
}

void reduce_float32(const float* const* sources, std::size_t source_count,
                    float* const* destinations, std::size_t destination_count, std::size_t count,
                    float divisor) {
  reduce_vectors(sources, source_count, destinations, destination_count, count, divisor);
}

void reduce_float64(const double* const* sources, std::size_t source_count,
                    double* const* destinations, std::size_t destination_count, std::size_t count,
                    double divisor) {
  reduce_vectors(sources, source_count, destinations, destination_count, count, divisor);
}

}  // namespace lockstep::shm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

HWY_EXPORT(reduce_float32);
HWY_EXPORT(reduce_float64);

float to_float(std::uint16_t bits, DataType type) {
  if (type == DataType::kBFloat16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

// Round to nearest, ties to even, as PyTorch converts; NaN stays NaN.
std::uint16_t from_float(float value, DataType type) {
  if (type == DataType::kFloat16) {
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void reduce_half(std::span<const std::byte* const> sources,
                 std::span<std::byte* const> destinations, std::size_t count, DataType type,
                 float divisor) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const std::byte* source : sources) {
      sum += to_float(reinterpret_cast<const std::uint16_t*>(source)[i], type);
    }
    const std::uint16_t result = from_float(sum / divisor, type);
    for (std::byte* destination : destinations) {
      reinterpret_cast<std::uint16_t*>(destination)[i] = result;
    }
  }
}

// Wraps around on overflow, like PyTorch; unsigned arithmetic keeps that defined.
template <class Unsigned>
void reduce_integers(std::span<const std::byte* const> sources,
                     std::span<std::byte* const> destinations, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Unsigned sum = 0;
    for (const std::byte* source : sources) {
      sum = static_cast<Unsigned>(sum + reinterpret_cast<const Unsigned*>(source)[i]);
    }
    for (std::byte* destination : destinations) {
      reinterpret_cast<Unsigned*>(destination)[i] = sum;
    }
  }
}

}  // namespace

std::size_t element_size(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64: return 8;
    case DataType::kFloat32:
    case DataType::kInt32: return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16: return 2;
    case DataType::kUInt8: return 1;
  }
  return 0;
}

const char* data_type_name(DataType type) {
  switch (type) {
    case DataType::kFloat32: return "float32";
    case DataType::kFloat64: return "float64";
    case DataType::kFloat16: return "float16";
    case DataType::kBFloat16: return "bfloat16";
    case DataType::kInt32: return "int32";
    case DataType::kInt64: return "int64";
    case DataType::kUInt8: return "uint8";
  }
  return "?";
}

bool is_floating_point(DataType type) { return type <= DataType::kBFloat16; }

void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, DataType type, ReduceOp op) {
  LOCKSTEP_CHECK(op == ReduceOp::kSum || is_floating_point(type));
  const double divisor = op == ReduceOp::kAverage ? static_cast<double>(sources.size()) : 1.0;
  switch (type) {
    case DataType::kFloat32:
      return HWY_DYNAMIC_DISPATCH(reduce_float32)(
          reinterpret_cast<const float* const*>(sources.data()), sources.size(),
          reinterpret_cast<float* const*>(destinations.data()), destinations.size(), count,
          static_cast<float>(divisor));
    case DataType::kFloat64:
      return HWY_DYNAMIC_DISPATCH(reduce_float64)(
          reinterpret_cast<const double* const*>(sources.data()), sources.size(),
          reinterpret_cast<double* const*>(destinations.data()), destinations.size(), count,
          divisor);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return reduce_half(sources, destinations, count, type, static_cast<float>(divisor));
    case DataType::kInt32: return reduce_integers<std::uint32_t>(sources, destinations, count);
    case DataType::kInt64: return reduce_integers<std::uint64_t>(sources, destinations, count);
    case DataType::kUInt8: return reduce_integers<std::uint8_t>(sources, destinations, count);
  }
}

}  // namespace lockstep::shm
#endif  // HWY_ONCE
