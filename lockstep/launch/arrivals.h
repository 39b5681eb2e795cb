// Records which ranks have joined their group, in memory shared with the launcher.
#pragma once

#include <atomic>

namespace lockstep::launch {

/// Written by the ranks, which inherit it by fork, and read by their launcher.
class Arrivals {
 public:
  /// Initially no rank has arrived. Throws an Error if the system refuses the memory.
  explicit Arrivals(int nproc_per_node);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Makes joined_group() record this rank's arrival. Called in a process that has just become the
  /// rank.
  void become(int local_rank);
  bool has_come(int local_rank) const;

 private:
  const int ranks_;
  std::atomic<bool>* const came_;
};

}  // namespace lockstep::launch
