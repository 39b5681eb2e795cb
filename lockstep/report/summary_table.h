// A table of the run, printed at its end.
#pragma once

#include <ostream>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Prints, when the run ends: a row per epoch (only the first and last ones if there are many), how
/// rank 0's training time was spent, the reason if the run ended early, tables such as a confusion
/// matrix (of at most 20 rows), the results of the last evaluation, the time to the first step, the
/// total time and the memory. The stream must outlive this object. Throws DataError if the stream
/// fails.
class SummaryTable final : public Listener {
 public:
  explicit SummaryTable(std::ostream& out) : out_(out) {}
  void on_run_end(const RunReport& report) override;

 private:
  std::ostream& out_;
};

}  // namespace lockstep::report
