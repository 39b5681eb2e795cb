#include <lockstep/report/progress_bar.h>

#include <algorithm>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal_bar.h>
#include <lockstep/report/text.h>

namespace lockstep::report {
namespace {

constexpr double kSecondsBetweenDrawings = 0.1;
constexpr double kLossDecay = 0.9;  // roughly the mean of the last ten steps

int columns_of_all(const std::vector<std::string>& fields) {
  int columns = 0;
  for (const std::string& field : fields) columns += static_cast<int>(field.size()) + 2;
  return columns;
}

}  // namespace

ProgressBar::~ProgressBar() {
  if (line_open_) out_ << '\n' << std::flush;
}

void ProgressBar::on_run_begin(const RunInfo& info) {
  max_epochs_ = info.max_epochs;
  out_ << run_heading(info);
  flush_output(out_);
}

void ProgressBar::on_step(const StepReport& report) {
  const bool first = report.step == 1 || !line_open_;
  loss_ = first ? report.loss : kLossDecay * loss_ + (1 - kLossDecay) * report.loss;
  const bool last = report.step == report.steps_per_epoch;
  if (!first && !last && report.seconds - drawn_at_ < kSecondsBetweenDrawings) return;
  drawn_at_ = report.seconds;
  line_open_ = true;
  out_ << kClearLine << line(report);
  flush_output(out_);
}

void ProgressBar::on_evaluation(const EvaluationReport& report) {
  out_ << kClearLine << evaluation_line(report, max_epochs_) << '\n';
  line_open_ = false;
  flush_output(out_);
}

void ProgressBar::on_epoch_end(const EpochReport& report) {
  out_ << kClearLine << epoch_line(report, max_epochs_) << '\n';
  line_open_ = false;
  flush_output(out_);
}

std::string ProgressBar::line(const StepReport& report) const {
  const double done = report.steps_per_epoch > 0 ? static_cast<double>(report.step) /
                                                       static_cast<double>(report.steps_per_epoch)
                                                 : 0;
  const std::string name = epoch_name(report.epoch, max_epochs_);
  std::vector<std::string> fields;
  const std::string percent = fixed_text(done * 100, 0) + "%";
  fields.push_back(std::string(percent.size() < 4 ? 4 - percent.size() : 0, ' ') + percent);
  if (report.seconds > 0) {
    fields.push_back(count_text(static_cast<double>(report.images) / report.seconds) + " img/s");
  }
  fields.push_back(str("loss ", fixed_text(loss_, 4)));
  if (done > 0) fields.push_back(clock_text(report.seconds * (1 - done) / done) + " left");

  // The last column stays free, because writing to it would wrap the line in some terminals.
  const int room = terminal_.columns() - 1 - static_cast<int>(name.size());
  while (!fields.empty() && columns_of_all(fields) > room) fields.pop_back();
  std::string text = name;
  const int bar = std::min(room - columns_of_all(fields) - 1, kWidestBar);
  if (bar >= kNarrowestBar) text.append(" ").append(draw_bar(done, bar, terminal_));
  for (const std::string& field : fields) text.append("  ").append(field);
  return fields.empty()
             ? name.substr(0, static_cast<std::size_t>(std::max(terminal_.columns() - 1, 0)))
             : text;
}

}  // namespace lockstep::report
