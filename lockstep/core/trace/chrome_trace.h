// Writes the spans of all ranks as a file for trace viewers.
//
// Format: "Trace Event Format" of the Chromium project, JSON object form, with complete events
// ("ph": "X"), flows ("s", "f") and counters ("C", for values). https://ui.perfetto.dev and
// chrome://tracing open it. Times are microseconds on rank 0's clock; a rank is a process ("pid"),
// and a track is one of its rows ("tid").
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/core/trace/span.h>

namespace lockstep {

/// Writes one file. Each rank's times are shifted by its ClockOffset, which the file states under
/// "otherData". The span of a collective is divided at the time when the last rank begins it:
/// before that time the rank waits for the last one (category "arrival"); after it, data are sent.
/// A flow leads from the last rank's span to the span of every other rank. The span of a received
/// message is divided at the time when the sender's span begins, and the flow leads from the
/// sender. Throws a DataError if the file cannot be written.
void write_chrome_trace(const std::filesystem::path& path, const std::vector<RankTrace>& ranks);

}  // namespace lockstep
