#include <lockstep/report/summary_table.h>

#include <algorithm>
#include <string>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/report/output.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

using Row = std::vector<std::string>;

// Longer runs show this many epochs of their beginning and end.
constexpr std::size_t kMostRows = 20;
constexpr std::size_t kFirstRows = 5;

Row row_of(const EpochReport& epoch, bool with_test) {
  Row row{std::to_string(epoch.epoch), fixed_text(epoch.train_loss, 4)};
  if (with_test) {
    row.push_back(epoch.test ? fixed_text(epoch.test->loss, 4) : "");
    row.push_back(epoch.test ? percent_text(epoch.test->accuracy) : "");
  }
  row.push_back(count_text(epoch.images_per_second));
  row.push_back(fixed_text(epoch.seconds, 2));
  return row;
}

std::vector<Row> rows_of(const std::vector<EpochReport>& epochs) {
  const bool with_test = std::any_of(epochs.begin(), epochs.end(), [](const EpochReport& epoch) {
    return epoch.test.has_value();
  });
  std::vector<Row> rows{with_test
                            ? Row{"epoch", "loss", "test loss", "accuracy", "img/s", "seconds"}
                            : Row{"epoch", "loss", "img/s", "seconds"}};
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const bool shortened = epochs.size() > kMostRows;
    if (shortened && i == kFirstRows) {
      rows.push_back(Row(rows.front().size(), "..."));
      i = epochs.size() - (kMostRows - kFirstRows - 1);
    }
    rows.push_back(row_of(epochs[i], with_test));
  }
  return rows;
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

// Shares of the training time of all epochs; what no phase claims is the loop's own.
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

void SummaryTable::on_run_end(const RunReport& report) {
  out_ << '\n';
  if (report.already_complete) {
    out_ << "the run is complete: all its steps were done before, and nothing was trained now; "
            "raise --max-epochs or --max-steps to go on\n";
  }
  if (!report.epochs.empty()) {
    print_aligned(out_, rows_of(report.epochs));
    out_ << phases_line(report.epochs) << '\n';
  }
  if (report.test) {
    out_ << "test accuracy " << percent_text(report.test->accuracy) << " of "
         << count_text(static_cast<double>(report.test->samples)) << " images, ";
  }
  if (report.skipped_images > 0) {
    out_ << count_text(static_cast<double>(report.skipped_images))
         << " images could not be read and were skipped, ";
  }
  if (!report.already_complete) {
    out_ << "first step after " << seconds_text(report.seconds_to_first_step) << ", ";
  }
  out_ << "total "
       << seconds_text(report.seconds_total) << ", peak memory of rank 0 "
       << bytes_text(static_cast<double>(report.peak_rss_bytes)) << '\n';
  flush_output(out_);
}

}  // namespace lockstep
