// A module's forward as a graph that is proven to hold for other inputs and other batch sizes.
#pragma once

#include <unordered_map>

#include <lockstep/export/trace/extent.h>
#include <lockstep/export/trace/places.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

struct TraceOptions {
  bool dynamic_batch = true;
  /// The dimension of each input that is the batch; -1: none. Empty: the first one of every input.
  std::vector<std::int64_t> batch_dimensions{};
  /// Let sizes that forward() reads from its inputs follow the batch where the runs show how,
  /// instead of refusing them.
  bool follow_batch = false;
  /// Accept that forward() reads values out of tensors, where no run showed that they matter.
  bool allow_reads = false;
};

/// What the comparison of several recordings showed about the first one.
struct Trace {
  Recording recording{};
  Places places{};
  std::int64_t batch = 0;  ///< in the recorded run; 0 where nothing follows the batch
  std::vector<std::int64_t> batch_dimensions{};  ///< one for each input
  /// Sizes of every tensor, and the whole numbers among the constants that follow the batch.
  std::unordered_map<const torch::jit::Value*, Extents> sizes{};
  std::unordered_map<const torch::jit::Value*, Extent> following{};
};

/// Records forward() with `inputs`, with two other inputs of the same sizes, and with
/// `dynamic_batch` with two other batch sizes, and compares what was recorded. ConfigError, which
/// names all places, when the recordings differ: a branch on data, a number or tensor that was
/// computed outside of the tracer's sight, a size that was read from an input; also when the
/// recorded operations give something else than forward() did in any of these runs.
Trace trace_module(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters,
                   const TraceOptions& options);

}  // namespace lockstep::onnx
