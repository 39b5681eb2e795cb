// The epoch in progress as one line of a terminal, redrawn in place.
#pragma once

#include <ostream>
#include <string>

#include <lockstep/report/terminal.h>
#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// Draws, at most ten times a second,
///   epoch  3/10 ━━━━━━━━━━━──────────  55%  25,974 img/s  loss 0.1234  0:01 left
/// and replaces it by a lasting line when the epoch ends, or is evaluated on the way. Narrow
/// terminals get shorter bars, then fewer figures. The stream must outlive the bar. The destructor
/// ends an unfinished line, so that an error message starts on a new one. Throws DataError if the
/// stream fails.
class ProgressBar final : public Listener {
 public:
  ProgressBar(std::ostream& out, Terminal terminal) : out_(out), terminal_(std::move(terminal)) {}
  ~ProgressBar() override;
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void on_run_begin(const RunInfo& info) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;
  void on_epoch_end(const EpochReport& report) override;

 private:
  std::string line(const StepReport& report) const;

  std::ostream& out_;
  Terminal terminal_;
  std::int64_t max_epochs_ = 0;
  double loss_ = 0;      ///< Smoothed, because single batches fluctuate.
  double drawn_at_ = 0;  ///< In seconds since the epoch began.
  bool line_open_ = false;
};

}  // namespace lockstep::report
