// The load that other programs put on the machine during a measurement.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep {

/// The seconds that `cpus` have been busy since boot. `stat` is the text of /proc/stat
/// (proc_stat(5)), whose unit is a tick of 1 / `ticks_per_second` s. Nothing if one of `cpus` is
/// missing from it.
std::optional<double> busy_seconds(std::string_view stat, const std::vector<int>& cpus,
                                   long ticks_per_second);
/// As above, from the current /proc/stat.
std::optional<double> busy_seconds(const std::vector<int>& cpus);

/// Watches the processors of this process from construction on.
class OtherPrograms {
 public:
  OtherPrograms();

  /// The share of the processors' time, from 0 to 1, that neither this process nor the children it
  /// has waited for used. Nothing if the kernel does not report it.
  std::optional<double> share() const;

 private:
  std::optional<double> used() const;  // by others, in seconds since boot

  const std::vector<int> cpus_;
  const Clock::time_point start_;
  const std::optional<double> before_;
};

}  // namespace lockstep
