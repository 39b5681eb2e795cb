#include <lockstep/report/line_log.h>

#include <lockstep/report/output.h>
#include <lockstep/report/text.h>

namespace lockstep::report {

void LineLog::on_run_begin(const RunInfo& info) {
  max_epochs_ = info.max_epochs;
  out_ << run_heading(info);
  flush_output(out_);
}

void LineLog::on_evaluation(const EvaluationReport& report) {
  out_ << evaluation_line(report, max_epochs_) << '\n';
  flush_output(out_);
}

void LineLog::on_epoch_end(const EpochReport& report) {
  out_ << epoch_line(report, max_epochs_) << '\n';
  flush_output(out_);
}

}  // namespace lockstep::report
