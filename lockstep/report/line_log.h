// One line per epoch, for files and pipes.
#pragma once

#include <ostream>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Writes run_heading() at the beginning, epoch_line() after each epoch, and evaluation_line() for
/// an evaluation within an epoch. The stream must outlive this object. Throws DataError if the
/// stream fails.
class LineLog final : public Listener {
 public:
  explicit LineLog(std::ostream& out) : out_(out) {}
  void on_run_begin(const RunInfo& info) override;
  void on_evaluation(const EvaluationReport& report) override;
  void on_epoch_end(const EpochReport& report) override;

 private:
  std::ostream& out_;
  std::int64_t max_epochs_ = 0;
};

}  // namespace lockstep::report
