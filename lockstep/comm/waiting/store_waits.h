// Helpers for polling a key of a c10d::Store and for writing text into a store.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::comm {

/// The pauses between two polls; each is twice as long as the one before. The first pauses are
/// short so that a rendezvous is fast; later ones reduce the load on the process that serves the
/// store.
class StorePauses {
 public:
  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, kLongest);
  }
  static constexpr std::chrono::microseconds kLongest{5000};

 private:
  std::chrono::microseconds next_{25};
};

/// Converts text to the bytes that a c10d::Store holds.
inline std::vector<std::uint8_t> store_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}
inline std::string store_text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace lockstep::comm
