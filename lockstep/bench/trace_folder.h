// `--trace FOLDER` of the benchmarks: some steps of each row on all ranks, a file for each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/trace/span.h>

namespace lockstep {

/// The file of a row: "ddp, native, 2 ranks" in "traces" is traces/ddp-native-2-ranks.json.
std::filesystem::path trace_file_of(const std::filesystem::path& folder, const std::string& row);

/// Creates the folder where it is missing. ConfigError, which names `command`, where it takes no
/// files. An empty one is not asked for.
void check_trace_folder(const std::string& command, const std::filesystem::path& folder);

/// Collective over `group`. Makes ten steps, by `step`, while this process records what its threads
/// do, and writes what all ranks did, with the spans that `spans` gives afterwards
/// (write_recording()). Call it when what is timed has been timed.
void trace_steps(const std::filesystem::path& file, const std::function<void()>& step,
                 const std::function<std::vector<Span>()>& spans, ProcessGroup& group);

}  // namespace lockstep
