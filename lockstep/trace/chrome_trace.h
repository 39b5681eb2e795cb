// The spans of all ranks as a file that trace viewers show.
//
// Format: "Trace Event Format" of the Chromium project, JSON object form, complete events ("ph":
// "X"), flows ("s", "f") and counters ("C", for values), which https://ui.perfetto.dev and
// chrome://tracing open. Times are microseconds on rank 0's clock; a rank is a process ("pid"), a
// track one of its rows ("tid").
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/trace/span.h>

namespace lockstep {

/// Writes one file. Each rank's times are moved by its ClockOffset, which the file states under
/// "otherData". The span of a collective is divided where the last of its ranks begins: until then
/// its rank waits for that rank (category "arrival"), from then on data travel. A flow leads from
/// the last rank's span to that of every other. The span of a received message is divided where its
/// sender's begins, and the flow leads from the sender. DataError where the file can't be written.
void write_chrome_trace(const std::filesystem::path& path, const std::vector<RankTrace>& ranks);

}  // namespace lockstep
