#include <lockstep/simulate/message_cost.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/error.h>

namespace lockstep::simulate {
namespace {

using CostPoints = std::vector<MessageCost::Point>;

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

double slope_between(const MessageCost::Point& from, const MessageCost::Point& to) {
  return (to.seconds - from.seconds) / (to.bytes - from.bytes);
}

// See MessageCost::latency_seconds().
double latency_of(const CostPoints& points) {
  const MessageCost::Point& first = points.front();
  if (points.size() == 1) return first.seconds;
  return std::max(0.0, first.seconds - first.bytes * slope_between(first, points[1]));
}

// The slope of the last segment that rises, see MessageCost::seconds().
double slope_beyond(const CostPoints& points) {
  if (points.size() == 1) return 0;
  const MessageCost::Point& last = points.back();
  for (std::size_t i = points.size() - 1; i > 0; --i) {
    if (points[i - 1].seconds < last.seconds) return slope_between(points[i - 1], last);
  }
  return last.seconds / last.bytes;
}

}  // namespace

MessageCost::MessageCost(std::vector<Point> points) : points_(std::move(points)) {
  if (points_.empty()) throw ConfigError("the cost of messages needs at least one measured size");
  for (const Point& point : points_) {
    if (is_amount(point.bytes) && is_amount(point.seconds)) continue;
    throw ConfigError(str("the cost of messages must have bytes and seconds of at least 0, got ",
                          point.seconds, " s for ", point.bytes, " bytes"));
  }
  std::ranges::sort(points_, {}, &Point::bytes);
  for (std::size_t i = 1; i < points_.size(); ++i) {
    if (points_[i].bytes <= points_[i - 1].bytes) {
      throw ConfigError(
          str("the cost of messages has two values for ", points_[i].bytes, " bytes"));
    }
  }
  for (std::size_t i = points_.size() - 1; i > 0; --i) {
    points_[i - 1].seconds = std::min(points_[i - 1].seconds, points_[i].seconds);
  }
  latency_seconds_ = latency_of(points_);
  seconds_per_byte_ = slope_beyond(points_);
}

MessageCost MessageCost::of(double alpha_seconds, double bytes_per_second) {
  constexpr double kSomeBytes = 1e6;
  return MessageCost(
      {{0, alpha_seconds}, {kSomeBytes, alpha_seconds + kSomeBytes / bytes_per_second}});
}

double MessageCost::seconds(double bytes) const {
  if (points_.empty()) return 0;
  const Point& first = points_.front();
  const Point& last = points_.back();
  if (bytes >= last.bytes) return last.seconds + (bytes - last.bytes) * seconds_per_byte_;
  if (bytes >= first.bytes) {
    const auto above = std::ranges::upper_bound(points_, bytes, {}, &Point::bytes);
    const Point& from = *(above - 1);
    return from.seconds + (bytes - from.bytes) * slope_between(from, *above);
  }
  return latency_seconds_ + (first.seconds - latency_seconds_) * bytes / first.bytes;
}

MessageCost MessageCost::at_speed(double factor) const {
  MessageCost changed = *this;
  for (Point& point : changed.points_) {
    point.seconds = latency_seconds_ + (point.seconds - latency_seconds_) / factor;
  }
  changed.seconds_per_byte_ /= factor;
  return changed;
}

}  // namespace lockstep::simulate
