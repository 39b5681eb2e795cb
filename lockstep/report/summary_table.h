// A table of the run, printed at its end.
#pragma once

#include <filesystem>
#include <ostream>
#include <utility>
#include <vector>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Prints, when the run ends: a row per epoch (only the first and last ones if there are many), of
/// a resumed run also for the epochs before that the run.json in `folder` has, with the numbers of
/// steps if the run was resumed or ended within an epoch, how rank 0's
/// training time was spent, the reason if the run ended early, tables such as a confusion matrix
/// (of at most 20 rows), the results of the last evaluation, the time to the first step, the total
/// time and the memory. The stream must outlive this object. Throws DataError if the stream fails.
class SummaryTable final : public Listener {
 public:
  explicit SummaryTable(std::ostream& out, std::filesystem::path folder = {})
      : out_(out), folder_(std::move(folder)) {}
  void on_run_begin(const RunInfo& info) override;
  void on_run_end(const RunReport& report) override;

 private:
  std::ostream& out_;
  const std::filesystem::path folder_;
  std::vector<EpochReport> earlier_{};  // epochs before the run was resumed
};

}  // namespace lockstep::report
