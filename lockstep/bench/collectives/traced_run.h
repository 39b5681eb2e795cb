// An all-reduce that was traced on every rank, and quantities derived from its traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/comm/algorithms/cost_model.h>
#include <lockstep/comm/algorithms/trace.h>

namespace lockstep::bench {

struct TracedRun {
  std::string algorithm;  ///< "ring", ...
  std::string backend;
  std::string dtype;
  std::size_t bytes = 0;                  ///< size of one rank's tensor
  std::size_t count = 0;                  ///< number of its elements
  comm::CostModel model;                  ///< measured just before
  std::vector<double> predicted_seconds;  ///< by the model, for each rank
  std::vector<comm::Trace> traces;        ///< one trace per rank, on one clock
  int repetitions = 1;                    ///< number of runs; this one is the median
  int processors = 0;                     ///< shared by the ranks
};

/// A message as seen by both of its ends.
struct Arrow {
  int step = 0;
  int from = 0;
  int to = 0;
  comm::ScheduledRange range;
  std::size_t bytes = 0;
  bool added = false;  ///< whether it was added to the receiver's data; otherwise it overwrote them
};

/// Sorted by step, then sender, then receiver.
std::vector<Arrow> arrows_of(const TracedRun& run);

/// Names for ranges of elements. The boundaries of all messages divide the tensor into pieces,
/// which are numbered from 0.
class PieceNames {
 public:
  explicit PieceNames(const TracedRun& run);
  std::size_t pieces() const { return starts_.size(); }
  std::size_t first_piece(comm::ScheduledRange range) const;
  std::string name(comm::ScheduledRange range) const;  ///< "2", "0-1", "all"

 private:
  std::vector<std::size_t> starts_;
  std::size_t count_;
};

struct RankTotals {
  std::size_t messages_sent = 0;
  std::size_t bytes_sent = 0;
  std::size_t bytes_received = 0;
  double seconds = 0;  ///< from the rank's start to its end
  double reduce_seconds = 0;
  double predicted_seconds = 0;
};
std::vector<RankTotals> totals_of(const TracedRun& run);

int step_count(const TracedRun& run);
/// The times when the first rank began and the last one ended.
std::int64_t begin_ns(const TracedRun& run);
std::int64_t end_ns(const TracedRun& run);

/// "ring all-reduce of 1 MiB float32 on 4 ranks over shm".
std::string title_of(const TracedRun& run);
/// "alpha 5.1 us per message, beta 0.12 ns per byte (8.3 GB/s), gamma 0.1 ns per byte added".
std::string model_text(const comm::CostModel& model);

}  // namespace lockstep::bench
