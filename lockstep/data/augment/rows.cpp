#include <lockstep/data/augment/rows.h>

namespace lockstep {
namespace {

// Written once and inlined into one function per instruction set, where the compiler vectorises it.
template <int kStep>
[[gnu::always_inline]] inline void convert(const std::uint8_t* source, std::int64_t count,
                                           float scale, float bias, float* __restrict output) {
  for (std::int64_t i = 0; i < count; ++i) {
    output[i] = static_cast<float>(source[kStep * i]) * scale + bias;
  }
}

template <int kStep>
[[gnu::always_inline]] inline void convert3(const std::uint8_t* source, std::int64_t plane,
                                            std::int64_t count, const float* scale,
                                            const float* bias, float* __restrict output) {
  const std::uint8_t* red = source;
  const std::uint8_t* green = source + plane;
  const std::uint8_t* blue = source + 2 * plane;
  const float scale0 = scale[0], scale1 = scale[1], scale2 = scale[2];
  const float bias0 = bias[0], bias1 = bias[1], bias2 = bias[2];
  for (std::int64_t i = 0; i < count; ++i) {
    output[3 * i] = static_cast<float>(red[kStep * i]) * scale0 + bias0;
    output[3 * i + 1] = static_cast<float>(green[kStep * i]) * scale1 + bias1;
    output[3 * i + 2] = static_cast<float>(blue[kStep * i]) * scale2 + bias2;
  }
}

#define LOCKSTEP_ROW_FUNCTIONS(NAME, TARGET)                                                    \
  struct NAME {                                                                                 \
    template <int kStep>                                                                        \
    TARGET static void row(const std::uint8_t* source, std::int64_t count, float scale,         \
                           float bias, float* output) {                                         \
      convert<kStep>(source, count, scale, bias, output);                                       \
    }                                                                                           \
    template <int kStep>                                                                        \
    TARGET static void row3(const std::uint8_t* source, std::int64_t plane, std::int64_t count, \
                            const float* scale, const float* bias, float* output) {             \
      convert3<kStep>(source, plane, count, scale, bias, output);                               \
    }                                                                                           \
    static constexpr RowFunctions kTable{row<1>, row<-1>, row3<1>, row3<-1>};                   \
  };

LOCKSTEP_ROW_FUNCTIONS(Baseline, )
#if defined(__x86_64__)
LOCKSTEP_ROW_FUNCTIONS(Avx2, [[gnu::target("avx2")]])
LOCKSTEP_ROW_FUNCTIONS(
    Avx512, [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")]])
#endif

}  // namespace

const RowFunctions& row_functions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return Avx512::kTable;
  }
  if (__builtin_cpu_supports("avx2")) return Avx2::kTable;
#endif
  return Baseline::kTable;
}

}  // namespace lockstep
