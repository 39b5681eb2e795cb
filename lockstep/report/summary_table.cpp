#include <lockstep/report/summary_table.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/formats/logged_values.h>
#include <lockstep/report/output.h>
#include <lockstep/report/run_record.h>
#include <lockstep/report/text.h>

namespace lockstep::report {
namespace {

using Row = std::vector<std::string>;

// Longer runs show this many epochs of their beginning and end.
constexpr std::size_t kMostRows = 20;
constexpr std::size_t kFirstRows = 5;

// The columns of evaluation results in the table.
struct ValidationColumns {
  bool loss = false;
  std::vector<std::string> values{};  // names
};

// Whether the run made only a part of the epoch's steps, since it was resumed or ended within it.
bool is_partial(const EpochReport& epoch) { return epoch.steps < epoch.steps_per_epoch; }

std::string steps_text(const EpochReport& epoch) {
  const std::string steps = std::to_string(epoch.steps);
  return is_partial(epoch) ? str(steps, " of ", epoch.steps_per_epoch) : steps;
}

ValidationColumns validation_columns(const std::vector<EpochReport>& epochs) {
  ValidationColumns columns;
  for (const EpochReport& epoch : epochs) {
    if (!epoch.test) continue;
    columns.loss = epoch.test->has_loss;
    for (const MetricValue& value : epoch.test->values) columns.values.push_back(value.name);
    break;  // a task adds the same values in each evaluation
  }
  return columns;
}

std::string cell_of(const std::optional<Evaluation>& test, const std::string& name) {
  if (!test) return {};
  for (const MetricValue& value : test->values) {
    if (value.name == name) return metric_text(value);
  }
  return {};
}

Row row_of(const EpochReport& epoch, const ValidationColumns& columns, bool has_steps) {
  Row row{std::to_string(epoch.epoch), fixed_text(epoch.train_loss, 4)};
  if (columns.loss) row.push_back(epoch.test ? fixed_text(epoch.test->loss, 4) : "");
  for (const std::string& name : columns.values) row.push_back(cell_of(epoch.test, name));
  row.push_back(count_text(epoch.images_per_second));
  row.push_back(fixed_text(epoch.seconds, 2));
  if (has_steps) row.push_back(steps_text(epoch));
  return row;
}

std::vector<Row> rows_of(const std::vector<EpochReport>& epochs) {
  const ValidationColumns columns = validation_columns(epochs);
  Row titles{"epoch", "loss"};
  if (columns.loss) titles.emplace_back("validation loss");
  titles.insert(titles.end(), columns.values.begin(), columns.values.end());
  titles.insert(titles.end(), {"img/s", "seconds"});
  const bool has_steps = std::ranges::any_of(epochs, is_partial);
  if (has_steps) titles.emplace_back("steps");
  std::vector<Row> rows{std::move(titles)};
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const bool shortened = epochs.size() > kMostRows;
    if (shortened && i == kFirstRows) {
      rows.push_back(Row(rows.front().size(), "..."));
      i = epochs.size() - (kMostRows - kFirstRows - 1);
    }
    rows.push_back(row_of(epochs[i], columns, has_steps));
  }
  return rows;
}

// A record of an earlier version does not have the units of its values. They are those of the
// values of the same name.
void take_units(const RunReport& report, std::vector<EpochReport>& epochs) {
  std::set<std::string> fractions;
  const auto note = [&fractions](const std::string& name, MetricUnit unit) {
    if (unit == MetricUnit::kFraction) fractions.insert(name);
  };
  const auto note_all = [&note](const std::optional<Evaluation>& test) {
    if (!test) return;
    for (const MetricValue& value : test->values) note(value.name, value.unit);
  };
  if (report.best) note(report.best->name, report.best->unit);
  note_all(report.test);
  for (const EpochReport& epoch : epochs) note_all(epoch.test);
  for (EpochReport& epoch : epochs) {
    if (!epoch.test) continue;
    for (MetricValue& value : epoch.test->values) {
      if (fractions.contains(value.name)) value.unit = MetricUnit::kFraction;
    }
  }
}

void print_aligned(std::ostream& out, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out << (i == 0 ? "" : "  ") << std::string(widths[i] - row[i].size(), ' ') << row[i];
    }
    out << '\n';
  }
}

// Whether a table contains counts, as a confusion matrix does.
bool has_whole_numbers(const MetricTable& table) {
  return std::ranges::all_of(table.rows, [](const std::vector<double>& row) {
    return std::ranges::all_of(
        row, [](double number) { return std::isfinite(number) && std::trunc(number) == number; });
  });
}

// Prints a table of numbers, such as a confusion matrix; large tables are left to machine-readable
// output.
void print_table(std::ostream& out, const MetricTable& table) {
  const LoggedTable shown = {.labels = table.labels, .rows = table.rows};
  const std::size_t width = shown.width();
  if (table.rows.empty() || std::max(table.rows.size(), width) > kMostRows) return;
  const bool whole = has_whole_numbers(table);
  Row titles{table.name};
  for (std::size_t i = 0; i < width; ++i) titles.push_back(shown.label(i));
  std::vector<Row> rows{std::move(titles)};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Row row{shown.label(i)};
    for (const double number : table.rows[i]) {
      row.push_back(whole ? count_text(number) : fixed_text(number, 4));
    }
    rows.push_back(std::move(row));
  }
  print_aligned(out, rows);
}

// "validation accuracy 98.42%, psnr 31.2500 of 10,000 images"; the loss if there are no other
// values.
std::string validation_line(const Evaluation& test) {
  std::vector<std::string> parts;
  for (const MetricValue& value : test.values) {
    parts.push_back(value.name + " " + metric_text(value));
  }
  if (parts.empty()) parts.push_back(evaluation_text(test));
  return "validation " + join(parts) + " of " + count_of(test.samples, "image");
}

// "best validation loss 0.0512 in epoch 3, weights in run/checkpoints/step-00001407/..."
std::string best_line(const BestEvaluation& best) {
  return "best " + best_text(best) + (best.weights.empty() ? "" : ", weights in " + best.weights);
}

// Shares of the training time of all epochs; time outside all phases belongs to the loop.
std::string phases_line(const std::vector<EpochReport>& epochs) {
  PhaseSeconds sum;
  double seconds = 0;
  for (const EpochReport& epoch : epochs) {
    sum.data += epoch.phases.data;
    sum.forward += epoch.phases.forward;
    sum.backward += epoch.phases.backward;
    sum.communication += epoch.phases.communication;
    sum.optimizer += epoch.phases.optimizer;
    seconds += epoch.seconds;
  }
  const double other = std::max(
      seconds - sum.data - sum.forward - sum.backward - sum.communication - sum.optimizer, 0.0);
  const auto share = [seconds](const char* name, double part) {
    return str(name, " ", fixed_text(seconds > 0 ? 100 * part / seconds : 0, 1), "%");
  };
  return "time of rank 0: " +
         join(Row{share("data", sum.data), share("forward", sum.forward),
                  share("backward", sum.backward), share("communication", sum.communication),
                  share("optimizer", sum.optimizer), share("other", other)});
}

}  // namespace

void SummaryTable::on_run_begin(const RunInfo& info) {
  earlier_.clear();
  if (folder_.empty() || info.resumed_from.empty()) return;
  earlier_ = recorded_epochs(folder_, info.first_epoch);
}

void SummaryTable::on_run_end(const RunReport& report) {
  out_ << '\n';
  if (report.already_complete) {
    out_ << "the run is complete: all its steps were done before, so nothing was trained; raise "
            "--max-epochs or --max-steps to continue it\n";
  }
  std::vector<EpochReport> epochs = earlier_;
  epochs.insert(epochs.end(), report.epochs.begin(), report.epochs.end());
  take_units(report, epochs);
  if (!epochs.empty()) {
    print_aligned(out_, rows_of(epochs));
    out_ << phases_line(epochs) << '\n';
  }
  if (!report.stop_reason.empty()) out_ << "the run ended early: " << report.stop_reason << '\n';
  if (report.test) {
    for (const MetricTable& table : report.test->tables) print_table(out_, table);
  }
  if (report.best) out_ << best_line(*report.best) << '\n';
  if (report.test) out_ << validation_line(*report.test) << ", ";
  if (report.skipped_images > 0) {
    out_ << count_of(report.skipped_images, "image") << " could not be read and "
         << (report.skipped_images == 1 ? "was" : "were") << " skipped, ";
  }
  if (!report.already_complete) {
    out_ << "first step after " << seconds_text(report.seconds_to_first_step) << ", ";
  }
  const bool goes_on = !report.already_complete && !report.info.resumed_from.empty();
  out_ << "total " << seconds_text(report.seconds_total) << (goes_on ? " since it was resumed" : "")
       << ", peak memory of rank 0 " << bytes_text(static_cast<double>(report.peak_rss_bytes))
       << '\n';
  flush_output(out_);
}

}  // namespace lockstep::report
