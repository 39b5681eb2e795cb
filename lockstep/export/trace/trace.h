// A module's forward as a graph that is verified with other inputs and other batch sizes.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include <lockstep/export/trace/extent.h>
#include <lockstep/export/trace/module_locations.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

struct TraceOptions {
  bool dynamic_batch = true;
  /// The batch dimension of each input; -1: none. Empty: the first dimension of every input.
  std::vector<std::int64_t> batch_dimensions{};
  /// Lets sizes that forward() reads from its inputs follow the batch if the runs show how, instead
  /// of refusing them.
  bool follow_batch = false;
  /// Allows forward() to read values out of tensors, unless a run showed that they matter.
  bool allow_reads = false;
};

/// The first of several recordings, and the results of comparing it with the others.
struct Trace {
  Recording recording{};
  ModuleLocations locations{};
  std::int64_t batch = 0;  ///< in the recorded run; 0 if nothing follows the batch
  std::vector<std::int64_t> batch_dimensions{};  ///< one for each input
  /// Sizes of every tensor, and the integer constants that follow the batch.
  std::unordered_map<const torch::jit::Value*, Extents> sizes{};
  std::unordered_map<const torch::jit::Value*, Extent> following{};
  /// Sizes of the results of Recording::calls, where they are known.
  std::vector<std::vector<std::optional<Extents>>> sizes_of_calls{};
};

/// Records forward() with `inputs`, with two other inputs of the same sizes and, with
/// `dynamic_batch`, with a batch of one and two other batch sizes, compares the recordings, and
/// rehearses forward() (rehearsal.h). Throws ConfigError, which names all places, if the recordings
/// differ because of a branch on data, a number or tensor that was computed where the tracer cannot
/// see it, or a size that was read from an input. Also throws ConfigError if the recorded
/// operations give other results than forward() in any of these runs.
Trace trace_module(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters,
                   const TraceOptions& options);

}  // namespace lockstep::onnx
