// The run in a table, at its end.
#pragma once

#include <ostream>

#include <lockstep/train/task/listener.h>

namespace lockstep {

/// Prints, when the run ends: a row per epoch (of many epochs the first and the last), where rank
/// 0's training time went, why the run ended early, if it did, tables such as a confusion matrix
/// (of at most 20 rows), what the last evaluation found, time to the first step, total time and
/// memory. The stream must outlive it; DataError when it fails.
class SummaryTable final : public Listener {
 public:
  explicit SummaryTable(std::ostream& out) : out_(out) {}
  void on_run_end(const RunReport& report) override;

 private:
  std::ostream& out_;
};

}  // namespace lockstep
