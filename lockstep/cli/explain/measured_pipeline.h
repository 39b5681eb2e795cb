// Runs a pipeline's table with stages that either multiply matrices or wait.
#pragma once

#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/cli/explain/pipeline_settings.h>

namespace lockstep::cli {

/// Trains `toys` according to `table` on the threads of this process and returns the step with the
/// median time. The timed steps alternate with steps of empty stages, which measure the
/// ExecutorCost; a separate step measures the bytes of activations. Seeds LibTorch's generator.
PipelineMeasurement measure_pipeline(const pipeline::Table& table, const ToyStages& toys);

}  // namespace lockstep::cli
