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

    bool operator==(const Point&) const = default;
  };

  /// Costs nothing.
  MessageCost() = default;
  /// A measurement: `points` in any order, of different sizes. A time that exceeds that of a larger
  /// message is lowered to the larger message's, because disturbances only increase measured times.
  /// A single point costs the same at any size and speed.
  /// Throws a ConfigError if there are no points, or if a number is negative or not finite.
  explicit MessageCost(std::vector<Point> points);

  /// alpha + bytes * beta.
  static MessageCost of(double alpha_seconds, double bytes_per_second);

  /// The cost of a message of `bytes`. Below the first point it is on the line from the latency to
  /// that point. Beyond the last point the last segment that rises is extended; if none rises, the
  /// cost is proportional to the bytes there, because nothing shows a faster wire.
  double seconds(double bytes) const;

  /// The cost of an empty message: where the line through the first two points meets 0 bytes, or 0
  /// if that is negative. The time of the smallest message is not its latency, since that message
  /// travels, too.
  double latency_seconds() const { return latency_seconds_; }

  /// The cost on a wire of `factor` times the speed. The part of each cost that exceeds the latency
  /// is divided by `factor`, which must be above 0.
  MessageCost at_speed(double factor) const;

  bool empty() const { return points_.empty(); }
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_{};  // by size
  double latency_seconds_ = 0;
  double seconds_per_byte_ = 0;  // beyond the last point
};

}  // namespace lockstep::simulate
