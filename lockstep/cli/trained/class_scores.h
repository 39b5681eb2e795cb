// Precision, recall and F1 of each class, from a confusion matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/train/task/listener.h>

namespace lockstep::cli {

/// A score is absent if it would be a division by zero.
struct ClassScores {
  std::string name{};
  std::int64_t images = 0;            ///< images of this class
  std::int64_t predicted = 0;         ///< images for which this class was predicted
  std::int64_t correct = 0;           ///< images for which both hold
  std::optional<double> precision{};  ///< correct / predicted
  std::optional<double> recall{};     ///< correct / images
  std::optional<double> f1{};         ///< 2 correct / (images + predicted)
};

/// The scores of the classes in the order of `confusion`, which has true classes in rows, predicted
/// ones in columns, and a label for each.
std::vector<ClassScores> class_scores(const MetricTable& confusion);

/// The means of the scores over the classes that have them, and the sums of the counts.
ClassScores mean_scores(const std::vector<ClassScores>& classes);

}  // namespace lockstep::cli
