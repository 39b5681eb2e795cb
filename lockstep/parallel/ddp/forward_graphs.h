// Which graphs came from forwards through the wrapper.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>

namespace lockstep {

/// Remembers the nodes that the latest forwards recorded, by the numbers that autograd gives to
/// nodes in the order of their creation on a thread. A backward over a graph that no forward made
/// is recognised, even after two forwards, as a GAN's discriminator has them, or in a second
/// backward after retain_graph. Not thread-safe.
class ForwardGraphs {
 public:
  /// A forward that records a graph begins or ends on this thread. One that is not said to end,
  /// because the caller runs the module itself, lasts until the next begins: what is recorded
  /// meanwhile counts as its own.
  void begin();
  void end();

  /// Whether the backward that runs on this thread covers a node of such a forward. To be asked
  /// from within it.
  bool in_this_backward() const;

 private:
  struct Nodes {
    std::uint64_t thread = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  static constexpr std::size_t kRemembered = 64;
  static constexpr std::uint64_t kOpen = std::numeric_limits<std::uint64_t>::max();

  std::deque<Nodes> forwards_;
};

}  // namespace lockstep
