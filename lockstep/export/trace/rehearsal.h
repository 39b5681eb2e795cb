// Runs forward() without computing anything, for batch sizes that would cost too much to record.
#pragma once

#include <lockstep/export/trace/trace.h>

namespace lockstep::onnx {

/// Calls forward() again with stand-ins for its inputs: tensors of the right sizes that have no
/// memory. Each operation of LibTorch returns a stand-in of the size that `trace` expects, so that
/// only the code between the operations runs. If the trace follows the batch, this is repeated for
/// batches from 1 to a million. Throws a ConfigError, which names the place, if forward() takes
/// another way, gives an operation another number than the trace expects, accesses the memory of a
/// tensor that depends on the inputs, or fails for a batch. With `allow_reads`, only the runs until
/// the first access to memory count.
void rehearse(const Forward& forward, const NamedParameters& parameters, const Trace& trace,
              bool allow_reads);

}  // namespace lockstep::onnx
