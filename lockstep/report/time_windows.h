// Windows of time in a trace, such as a rank's steps, that spans are looked up in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::report {

struct TimeWindow {
  double begin = 0;
  double end = 0;

  /// The length of the part of [from, to] that lies in the window.
  double overlap(double from, double to) const {
    return std::max(std::min(to, end) - std::max(from, begin), 0.0);
  }
};

/// Finds the windows that a time touches without visiting all of them, so that a trace of many
/// steps is read in a time that grows with its length and not with its square. The windows may have
/// any order; each lookup is fast if few of them overlap.
class TimeWindows {
 public:
  TimeWindows() = default;
  explicit TimeWindows(const std::vector<TimeWindow>& windows) {
    for (std::size_t i = 0; i < windows.size(); ++i) sorted_.push_back({windows[i], i, 0});
    std::ranges::stable_sort(sorted_, {}, [](const Place& place) { return place.window.begin; });
    double latest = 0;
    for (Place& place : sorted_) {
      latest = &place == sorted_.data() ? place.window.end : std::max(latest, place.window.end);
      place.latest_end = latest;
    }
  }

  /// Calls `visit(index, window)` for each window that shares a moment with [from, to], by
  /// beginning. The index is that in the constructor's vector.
  template <class Visit>
  void visit(double from, double to, const Visit& visit) const {
    auto place = std::ranges::lower_bound(sorted_, from, {}, &Place::latest_end);
    for (; place != sorted_.end() && place->window.begin <= to; ++place) {
      if (place->window.end >= from) visit(place->index, place->window);
    }
  }

  /// The length of [from, to] that lies in the windows, if these do not overlap.
  double length_within(double from, double to) const {
    double length = 0;
    visit(from, to,
          [&](std::size_t, const TimeWindow& window) { length += window.overlap(from, to); });
    return length;
  }

 private:
  struct Place {
    TimeWindow window{};
    std::size_t index = 0;
    double latest_end = 0;  // the latest of this window and all before it
  };
  std::vector<Place> sorted_{};
};

}  // namespace lockstep::report
