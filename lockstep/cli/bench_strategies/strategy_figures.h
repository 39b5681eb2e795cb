// What each rank of a way measured, in memory that the launcher and its ranks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Times of one rank in one round, in milliseconds a step, and its memory in bytes. Plain memory:
/// a rank writes it, and its launcher reads it once the rank has ended.
struct RankFigures {
  std::int64_t steps = 0;      ///< timed; 0 until the rank has written
  double step_ms = 0;          ///< median of the steps
  double mean_step_ms = 0;     ///< mean of the steps, as all times below
  double strategy_ms = 0;      ///< in Strategy::step()
  double processor_ms = 0;     ///< of all threads of the process
  double forward_ms = 0;       ///< PhaseSeconds, as the strategy reports them
  double backward_ms = 0;
  double communication_ms = 0;
  double optimizer_ms = 0;     ///< the optimizer's step, and making gradients zero
  std::int64_t start_bytes = 0;         ///< resident before the model existed
  std::int64_t peak_bytes = 0;          ///< largest resident set
  std::int64_t proportional_bytes = 0;  ///< after the steps, shared pages divided
  std::array<char, 16> backend{};       ///< of the group, with a 0 behind it

  std::string backend_name() const { return backend.data(); }
  /// Keeps as many characters as there is room for.
  void set_backend(const std::string& name);
};

/// A place for the figures of each rank. Created by the launcher before it forks; the mapping is
/// the same memory in all processes. Rank r writes only its own place.
class SharedFigures {
 public:
  /// Error where the system has no memory for it.
  explicit SharedFigures(int ranks);
  ~SharedFigures();
  SharedFigures(const SharedFigures&) = delete;
  SharedFigures& operator=(const SharedFigures&) = delete;

  RankFigures& of_rank(int rank) { return first_[rank]; }
  /// By rank.
  std::vector<RankFigures> all() const { return {first_, first_ + ranks_}; }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(ranks_) * sizeof(RankFigures); }

  int ranks_;
  RankFigures* first_;
};

}  // namespace lockstep
