// What everybody does who waits for a key of a c10d::Store by looking, or writes text into one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

/// The pauses between two looks, each twice as long as the last: the first ones are short, so that
/// a rendezvous costs little, the later ones spare the process that serves the store.
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

/// As a c10d::Store holds text.
inline std::vector<std::uint8_t> store_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}
inline std::string store_text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace lockstep
