#include <lockstep/simulate/message_cost.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/error.h>

namespace lockstep::simulate {
namespace {

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

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
}

MessageCost MessageCost::of(double alpha_seconds, double bytes_per_second) {
  constexpr double kSomeBytes = 1e6;
  return MessageCost(
      {{0, alpha_seconds}, {kSomeBytes, alpha_seconds + kSomeBytes / bytes_per_second}});
}

double MessageCost::seconds(double bytes) const {
  if (points_.empty()) return 0;
  if (points_.size() == 1 || bytes <= points_.front().bytes) return points_.front().seconds;
  const auto above = std::ranges::lower_bound(points_, bytes, {}, &Point::bytes);
  const Point& to = above == points_.end() ? points_.back() : *above;
  const Point& from = *(above == points_.end() ? above - 2 : above - 1);
  const double slope = (to.seconds - from.seconds) / (to.bytes - from.bytes);
  return from.seconds + (bytes - from.bytes) * slope;
}

MessageCost MessageCost::at_speed(double factor) const {
  if (points_.empty()) return {};
  const double shortest = points_.front().seconds;
  std::vector<Point> points = points_;
  for (Point& point : points) point.seconds = shortest + (point.seconds - shortest) / factor;
  return MessageCost(std::move(points));
}

}  // namespace lockstep::simulate
