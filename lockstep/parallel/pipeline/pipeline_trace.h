// A timeline of a pipeline for trace viewers.
#pragma once

#include <filesystem>

#include <lockstep/parallel/pipeline/replay.h>

namespace lockstep::pipeline {

/// Writes `timeline`, in seconds, in Chrome's trace format: a row for each worker, a span for each
/// action. DataError where the file cannot be written.
void write_trace(const std::filesystem::path& path, const Timeline& timeline);

}  // namespace lockstep::pipeline
