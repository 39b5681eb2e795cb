// A table of how a run spent its time, printed at the end.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// A table like that of Lightning's simple profiler: a row for each action, longest first, with its
/// number of calls, their mean and total time, and its share of the whole. Ends with a line feed.
///
///   action     calls    mean    total  share
///   backward     469  2.1 ms   1.00 s  52.1%
///   ...
std::string table_text(std::span<const ProfiledAction> profile);

/// Prints table_text() when the run ends, if TrainerOptions::profiler asks for it. The stream must
/// outlive this object. Throws DataError if the stream fails.
class ProfileTable final : public Listener {
 public:
  explicit ProfileTable(std::ostream& out) : out_(out) {}
  void on_run_end(const RunReport& report) override;

 private:
  std::ostream& out_;
};

}  // namespace lockstep::report
