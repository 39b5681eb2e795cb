// Exports a pipeline's timeline for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/trace/span.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>

namespace lockstep::pipeline {

/// The actions of `timeline`, in seconds since `began`, as spans with a row for each worker.
std::vector<Span> trace_spans(const Timeline& timeline, Clock::time_point began = {});

/// Writes `timeline`, in seconds, in Chrome's trace format. Throws DataError if the file cannot be
/// written.
void write_trace(const std::filesystem::path& path, const Timeline& timeline);

}  // namespace lockstep::pipeline
