// Runs forward() without computing anything, for batch sizes that would cost too much to record.
#pragma once

#include <lockstep/export/trace/trace.h>

namespace lockstep::onnx {

/// Calls forward() again with stand-ins for its inputs: tensors of the right sizes that have no
/// memory. Each operation of LibTorch returns a stand-in of the size that `trace` expects, so that
/// only the code between the operations runs. If the trace follows the batch, this is repeated for
/// batches from 1 to a million. Throws a ConfigError, which names the place, if forward() takes
/// another way, gives an operation another argument than the trace expects, reads a size out of the
/// values or accesses the memory of a tensor that depends on the inputs, or fails for a batch, and
/// if a result has another size than the trace expects. With `allow_reads`, only the runs until the
/// first such read or access count.
void rehearse(const Forward& forward, const NamedParameters& parameters, const Trace& trace,
              bool allow_reads);

/// The end of an error about a forward() that fails with another batch than the example's.
inline constexpr const char* kForSomeBatches =
    "; export with dynamic_batch = false if it takes only some batches";

}  // namespace lockstep::onnx
