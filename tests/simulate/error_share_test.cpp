#include <lockstep/simulate/error_share.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::simulate {
namespace {

using KindOfRow = std::pair<Wire, bool>;  // with small buckets

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, '|');) {
    const auto first = cell.find_first_not_of(' ');
    cells.push_back(first == std::string::npos
                        ? ""
                        : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return cells;
}

// The prediction errors of the page's first three rounds, by kind of row and sorted. A row has the
// columns net, batch, wire, strategy, bucket, predicted, interval, communication, measured, error,
// in the interval. Later rounds check the intervals that follow from these errors.
std::map<KindOfRow, std::vector<double>> errors_of_the_page() {
  constexpr std::size_t kCells = 12;  // including the text before the first bar
  std::map<KindOfRow, std::vector<double>> errors;
  std::ifstream page(LOCKSTEP_VALIDATION);
  for (std::string line; std::getline(page, line);) {
    if (line == "### Round 4") break;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != kCells || (cells[1] != "mnist" && cells[1] != "resnet18")) continue;
    const Wire wire = cells[3] == "shm"    ? Wire::kSharedMemory
                      : cells[3] == "gloo" ? Wire::kOneHost
                                           : Wire::kNetwork;
    const bool has_small_buckets = cells[5] == "0.02" && wire != Wire::kSharedMemory;
    errors[{has_small_buckets ? Wire::kNetwork : wire, has_small_buckets}].push_back(
        std::abs(std::stod(cells[6]) / std::stod(cells[9]) - 1));
  }
  for (auto& [kind, those] : errors) std::ranges::sort(those);
  return errors;
}

TEST(ErrorShare, HoldsNineteenInTwentyOfTheCheckedPredictions) {
  const auto errors = errors_of_the_page();
  ASSERT_EQ(errors.size(), 4U) << LOCKSTEP_VALIDATION;
  std::size_t predictions = 0;
  for (const auto& [kind, those] : errors) {
    const auto& [wire, has_small_buckets] = kind;
    const double share = error_share(wire, has_small_buckets);
    predictions += those.size();
    const auto place =
        static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(those.size()))) - 1;
    EXPECT_LE(those[place], share) << "kind " << static_cast<int>(wire);
    EXPECT_GT(those[place], share - 0.01) << "no smaller percent holds as many";
  }
  EXPECT_EQ(predictions, 162U);
}

TEST(ErrorShare, IsThatOfSmallBucketsOverAllSockets) {
  EXPECT_DOUBLE_EQ(error_share(Wire::kOneHost, true), error_share(Wire::kNetwork, true));
  EXPECT_DOUBLE_EQ(error_share(Wire::kSharedMemory, true), error_share(Wire::kSharedMemory, false));
}

TEST(ErrorShare, MakesAnIntervalOfWhatMayHaveBeenMeasured) {
  const SecondsInterval interval = interval_around(1.2, 0.2);
  EXPECT_DOUBLE_EQ(interval.low, 1);     // predicted times were 20% too high
  EXPECT_DOUBLE_EQ(interval.high, 1.5);  // predicted times were 20% too low
  EXPECT_DOUBLE_EQ(interval_around(1.2, 0.2, 0.3).low, 1);
  EXPECT_DOUBLE_EQ(interval_around(1.2, 0.2, 0.3).high, 1.8);
}

}  // namespace
}  // namespace lockstep::simulate
