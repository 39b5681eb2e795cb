// A table of the run, printed at its end.
#pragma once

#include <ostream>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Prints, when the run ends: a row per epoch (if there are many, the first and the last ones), how
/// rank 0's training time was spent, why the run ended early, if it did, tables such as a confusion
/// matrix (of at most 20 rows), the results of the last evaluation, time to the first step, total
/// time and memory. The stream must outlive it; DataError if the stream fails.
class SummaryTable final : public Listener {
 public:
  explicit SummaryTable(std::ostream& out) : out_(out) {}
  void on_run_end(const RunReport& report) override;

 private:
  std::ostream& out_;
};

}  // namespace lockstep::report
