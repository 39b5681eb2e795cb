#include <lockstep/cli/trained/class_scores.h>

#include <cstddef>

namespace lockstep::cli {
namespace {

std::optional<double> share_of(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::optional<double> mean_of(const std::vector<ClassScores>& classes,
                              std::optional<double> ClassScores::* score) {
  double sum = 0;
  std::int64_t count = 0;
  for (const ClassScores& each : classes) {
    if (!(each.*score)) continue;
    sum += *(each.*score);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

std::vector<ClassScores> class_scores(const MetricTable& confusion) {
  std::vector<ClassScores> classes(confusion.rows.size());
  for (std::size_t row = 0; row < classes.size(); ++row) {
    classes[row].name = confusion.labels.at(row);
    for (std::size_t column = 0; column < classes.size(); ++column) {
      const auto count = static_cast<std::int64_t>(confusion.rows[row].at(column));
      classes[row].images += count;
      classes[column].predicted += count;
      if (row == column) classes[row].correct = count;
    }
  }
  for (ClassScores& each : classes) {
    each.precision = share_of(each.correct, each.predicted);
    each.recall = share_of(each.correct, each.images);
    each.f1 = share_of(2 * each.correct, each.images + each.predicted);
  }
  return classes;
}

ClassScores mean_scores(const std::vector<ClassScores>& classes) {
  ClassScores mean{.name = "mean",
                   .precision = mean_of(classes, &ClassScores::precision),
                   .recall = mean_of(classes, &ClassScores::recall),
                   .f1 = mean_of(classes, &ClassScores::f1)};
  for (const ClassScores& each : classes) {
    mean.images += each.images;
    mean.predicted += each.predicted;
    mean.correct += each.correct;
  }
  return mean;
}

}  // namespace lockstep::cli
