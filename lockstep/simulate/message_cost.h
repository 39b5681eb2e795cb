// What it takes to send a message of some size.
#pragma once

#include <vector>

namespace lockstep {

/// Seconds as a function of bytes: straight lines between points, which never fall. Hockney's model
/// (R. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994), alpha + bytes
/// * beta, has two points; a measurement has more, since protocols change with the size. A value,
/// immutable after construction and therefore thread-safe.
class MessageCost {
 public:
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };

  /// Costs nothing.
  MessageCost() = default;
  /// A measurement: `points` in any order, of different sizes. A time above that of a larger
  /// message is lowered to it, because what disturbs a measurement only adds. ConfigError without
  /// points, and for numbers that are negative or not finite.
  explicit MessageCost(std::vector<Point> points);

  /// alpha + bytes * beta.
  static MessageCost of(double alpha_seconds, double bytes_per_second);

  /// What a message of `bytes` takes. Below the first point it is what the first takes; behind the
  /// last point the last line goes on.
  double seconds(double bytes) const;

  /// The cost on a wire of `factor` times the speed: what a message takes beyond the shortest one
  /// is divided by `factor`, which is above 0.
  MessageCost at_speed(double factor) const;

  bool empty() const { return points_.empty(); }
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_{};  // by size
};

}  // namespace lockstep
