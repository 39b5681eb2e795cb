// The waits of host threads for the far device.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace lockstep::testing_support::far_device {

inline std::mutex waits_mutex;  // guards all_waits
inline std::vector<std::string> all_waits;
inline thread_local int operators_on_copies = 0;  // their reads would be no waits on a real device

inline void note_wait(const std::string& name) {
  if (operators_on_copies > 0) return;
  const std::scoped_lock lock(waits_mutex);
  all_waits.push_back(name);
}

/// During its lifetime this thread's copies are part of an operator.
struct OperatorOnCopies {
  OperatorOnCopies() { ++operators_on_copies; }
  ~OperatorOnCopies() { --operators_on_copies; }
  OperatorOnCopies(const OperatorOnCopies&) = delete;
  OperatorOnCopies& operator=(const OperatorOnCopies&) = delete;
};

}  // namespace lockstep::testing_support::far_device
