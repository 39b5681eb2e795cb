// The strokes of the ten digits, with several ways to write each.
#pragma once

#include <span>
#include <vector>

namespace lockstep::data {

struct Point {
  float x = 0;
  float y = 0;
  bool operator==(const Point&) const = default;
};

/// The points of a pen stroke, in a square from (0, 0), top left, to (1, 1), bottom right. A stroke
/// whose first and last points are equal is closed. It has from two to kMaximumStrokePoints points.
using Stroke = std::vector<Point>;
using Skeleton = std::vector<Stroke>;

inline constexpr int kMaximumStrokePoints = 16;

/// The ways to write `digit`, 0 to 9; never empty.
std::span<const Skeleton> digit_skeletons(int digit);

/// The point at `t` in [0, 1] of the Catmull-Rom spline from p1 to p2 with neighbours p0 and p3.
Point catmull_rom(Point p0, Point p1, Point p2, Point p3, float t);

}  // namespace lockstep::data
