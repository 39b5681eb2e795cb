// Which ranks of a launch have joined their group: memory that the launcher shares with them.
#pragma once

#include <atomic>

namespace lockstep {

/// Written by the ranks, which inherit it by fork, and read by their launcher.
class Arrivals {
 public:
  /// Nobody has come. Error when the system refuses the memory.
  explicit Arrivals(int nproc_per_node);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// In the process that has just become this rank: joined_group() is about it from now on.
  void become(int local_rank);
  bool has_come(int local_rank) const;

 private:
  const int ranks_;
  std::atomic<bool>* const came_;
};

}  // namespace lockstep
