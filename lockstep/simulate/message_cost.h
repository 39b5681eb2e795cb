// The cost of sending a message, by its size.
#pragma once

#include <vector>

namespace lockstep::simulate {

/// Seconds as a function of bytes: piecewise linear between points, and never decreasing. Hockney's
/// model, alpha + bytes * beta (R. Hockney, "The communication challenge for MPP", Parallel
/// Computing 20, 1994), has two points; a measurement has more, since protocols change with the
/// size. An immutable value, and therefore thread-safe.
class MessageCost {
 public:
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };

  /// Costs nothing.
  MessageCost() = default;
  /// A measurement: `points` in any order, of different sizes. A time that exceeds that of a larger
  /// message is lowered to the larger message's, because disturbances only increase measured times.
  /// Throws a ConfigError if there are no points, or if a number is negative or not finite.
  explicit MessageCost(std::vector<Point> points);

  /// alpha + bytes * beta.
  static MessageCost of(double alpha_seconds, double bytes_per_second);

  /// The cost of a message of `bytes`. Below the first point it is the first point's cost; beyond
  /// the last point the last segment is extended.
  double seconds(double bytes) const;

  /// The cost on a wire of `factor` times the speed. The part of each cost that exceeds the cost of
  /// the shortest message is divided by `factor`, which must be above 0.
  MessageCost at_speed(double factor) const;

  bool empty() const { return points_.empty(); }
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_{};  // by size
};

}  // namespace lockstep::simulate
