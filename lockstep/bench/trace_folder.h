// `--trace FOLDER` of the benchmarks: a trace of some steps on all ranks for each row.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/trace/span.h>

namespace lockstep::bench {

/// The trace file of a row: for "ddp, native, 2 ranks" in "traces", traces/ddp-native-2-ranks.json.
std::filesystem::path trace_file_of(const std::filesystem::path& folder, const std::string& row);

/// Collective over `group`. Calls `step` ten times while recording this process's threads. Then
/// writes the recordings of all ranks, together with the spans that `spans` returns afterwards
/// (write_recording()). To be called after the timed part.
void trace_steps(const std::filesystem::path& file, const std::function<void()>& step,
                 const std::function<std::vector<Span>()>& spans, ProcessGroup& group);

}  // namespace lockstep::bench
