// What else the machine does while something is measured.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep {

/// The seconds that `cpus` have been busy since the machine was started, by the text of /proc/stat
/// (proc_stat(5)), whose unit is a tick of 1 / `ticks_per_second` s. Nothing where one is missing.
std::optional<double> busy_seconds(std::string_view stat, const std::vector<int>& cpus,
                                   long ticks_per_second);
/// As above, from /proc/stat as it is now.
std::optional<double> busy_seconds(const std::vector<int>& cpus);

/// Watches the processors of this process from its construction on.
class OtherPrograms {
 public:
  OtherPrograms();

  /// The share of their time, from 0 to 1, that was used neither by this process nor by processes
  /// that it has started and waited for. Nothing where the kernel does not tell.
  std::optional<double> share() const;

 private:
  std::optional<double> used() const;  // by others, in seconds since the machine was started

  const std::vector<int> cpus_;
  const Clock::time_point start_;
  const std::optional<double> before_;
};

}  // namespace lockstep
