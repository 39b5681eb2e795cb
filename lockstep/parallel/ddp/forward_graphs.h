// Recognises graphs recorded by forwards of the wrapper.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>

namespace lockstep::parallel {

/// Remembers which nodes the latest forwards recorded, by the sequence numbers that autograd
/// assigns on each thread. It thus distinguishes a backward over a graph that no forward recorded
/// from the second backward after two forwards, as for a GAN's discriminator, and from a second
/// backward after retain_graph. Not thread-safe.
class ForwardGraphs {
 public:
  /// Marks the beginning or end, on this thread, of a forward that records a graph. A forward
  /// without an end, because the caller runs the module directly, lasts until the next one begins:
  /// nodes recorded in between count as its own.
  void begin();
  void end();

  /// Whether the backward running on this thread covers a node of such a forward. Call it from
  /// within that backward.
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

}  // namespace lockstep::parallel
