// Computes every collective in one process: the expected contents of each rank's memory.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <lockstep/comm/call/description.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/error.h>

namespace lockstep::testing_support {

using Bytes = std::vector<std::byte>;

inline std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// A value of `type` that depends on (seed, i): floats of moderate size, arbitrary integers, 0 or 1
/// for bool.
inline void put_value(std::byte* to, detail::DataType type, std::uint64_t seed, std::size_t i) {
  std::uint64_t bits = mix(seed * 1000003 + i);
  switch (type) {
    case detail::DataType::kFloat32: {
      const float value = static_cast<float>(static_cast<std::int64_t>(bits)) / 9.3e18F;
      std::memcpy(to, &value, 4);
      return;
    }
    case detail::DataType::kFloat64: {
      const double value = static_cast<double>(static_cast<std::int64_t>(bits)) / 9.3e18;
      std::memcpy(to, &value, 8);
      return;
    }
    case detail::DataType::kFloat16:
      bits = (bits & 0x83FF) | ((13 + (bits >> 60) % 4) << 10);
      break;
    case detail::DataType::kBFloat16:
      bits = (bits & 0x807F) | ((125 + (bits >> 60) % 4) << 7);
      break;
    case detail::DataType::kBool:
      bits &= 1;
      break;
    default:
      break;
  }
  std::memcpy(to, &bits, detail::element_size(type));
}

inline Bytes values(detail::DataType type, std::size_t count, std::uint64_t seed) {
  Bytes bytes(count * detail::element_size(type));
  for (std::size_t i = 0; i < count; ++i)
    put_value(bytes.data() + i * detail::element_size(type), type, seed, i);
  return bytes;
}

inline bool gives_each_a_part(CallKind kind) {
  return kind == CallKind::kScatter || kind == CallKind::kReduceScatter ||
         kind == CallKind::kAllToAll;
}
inline bool is_in_place(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kReduce || kind == CallKind::kAllReduce;
}
inline std::uint64_t seed_of(std::uint64_t seed, int rank) {
  return seed * 1000 + static_cast<std::uint64_t>(rank);
}

/// The input of `rank`.
inline Bytes given(const CallDescription& call, int rank, int size, std::uint64_t seed) {
  if (call.kind == CallKind::kBarrier) return {};
  if (call.kind == CallKind::kScatter && rank != call.root) return {};
  const std::size_t pieces = gives_each_a_part(call.kind) ? static_cast<std::size_t>(size) : 1;
  return values(call.type, call.count * pieces, seed_of(seed, rank));
}

/// The expected output of `rank`, or its tensor after an in-place call.
inline Bytes expected(const CallDescription& call, int rank, int size, std::uint64_t seed) {
  const std::size_t piece = call.count * detail::element_size(call.type);
  std::vector<Bytes> inputs;
  for (int r = 0; r < size; ++r) inputs.push_back(given(call, r, size, seed));
  const auto combined = [&](std::size_t part) {
    Bytes result(piece);
    std::vector<const std::byte*> sources;
    for (const Bytes& input : inputs) sources.push_back(input.data() + part * piece);
    std::byte* destination = result.data();
    comm::reduce(sources, {&destination, 1}, call.count, call.type, call.op);
    return result;
  };
  const auto joined = [&](auto part_of) {
    Bytes result;
    for (int r = 0; r < size; ++r) {
      const std::byte* part = part_of(r);
      result.insert(result.end(), part, part + piece);
    }
    return result;
  };
  const auto me = static_cast<std::size_t>(rank);
  switch (call.kind) {
    case CallKind::kBroadcast:
      return inputs[static_cast<std::size_t>(call.root)];
    case CallKind::kReduce:
      return rank == call.root ? combined(0) : inputs[me];
    case CallKind::kAllReduce:
      return combined(0);
    case CallKind::kReduceScatter:
      return combined(me);
    case CallKind::kGather:
      if (rank != call.root) return {};
      [[fallthrough]];
    case CallKind::kAllGather:
      return joined([&](int r) { return inputs[static_cast<std::size_t>(r)].data(); });
    case CallKind::kScatter: {
      const std::byte* part = inputs[static_cast<std::size_t>(call.root)].data() + me * piece;
      return {part, part + piece};
    }
    case CallKind::kAllToAll:
      return joined([&](int r) { return inputs[static_cast<std::size_t>(r)].data() + me * piece; });
    default:
      return {};
  }
}

/// One rank's buffers in one call.
struct CallBuffers {
  Bytes input;
  Bytes output;
  const std::byte* input_data() const { return input.empty() ? nullptr : input.data(); }
  std::byte* output_data() { return output.empty() ? nullptr : output.data(); }
};

inline CallBuffers buffers(const CallDescription& call, int rank, int size, std::uint64_t seed) {
  CallBuffers result{given(call, rank, size, seed), {}};
  if (is_in_place(call.kind)) {
    result.output = std::move(result.input);
    result.input.clear();
  } else {
    result.output.resize(expected(call, rank, size, seed).size());
  }
  return result;
}

inline void require_expected(const CallDescription& call, const Bytes& got, int rank, int size,
                             std::uint64_t seed) {
  if (call.kind == CallKind::kBarrier) return;
  const Bytes wanted = expected(call, rank, size, seed);
  if (got == wanted) return;
  const auto at =
      std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end()).first - got.begin();
  throw Error(
      str("rank ", rank, ": ", describe(call), " differs from byte ", at, " of ", wanted.size()));
}

}  // namespace lockstep::testing_support
