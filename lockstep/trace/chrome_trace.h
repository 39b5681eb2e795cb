// Spans of time as a file that trace viewers show.
//
// Format: "Trace Event Format" of the Chromium project, JSON object form, complete events ("ph": "X"),
// which https://ui.perfetto.dev and chrome://tracing open. Times are microseconds; a rank is a process
// ("pid"), a track one of its rows ("tid").
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep {

struct Span {
  std::string name{};
  std::string category{};
  Clock::time_point begin{};
  Clock::time_point end{};
  std::string track{};                                ///< the row; rows come in the order in which they first appear
  std::map<std::string, std::string> arguments = {};  ///< shown when the span is chosen
};

/// The events of one rank as text, to be sent to the rank that writes the file.
std::string chrome_events(int rank, const std::vector<Span>& spans);

/// Joins what chrome_events() returned on each rank. DataError where the file can't be written.
void write_chrome_trace(const std::filesystem::path& path, const std::vector<std::string>& events);

}  // namespace lockstep
