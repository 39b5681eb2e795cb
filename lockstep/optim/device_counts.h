// The step counts of a group's parameters, kept on their device. Internal to GroupStep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep::detail {

/// Parameters that step together and have equal step counts share one count. The host knows which
/// parameters these are; only the device knows the count, because it may replay steps or skip some
/// whose gradients were not finite. Not thread-safe.
class DeviceCounts {
 public:
  struct Count {
    std::vector<std::size_t> members;  ///< indices of parameters
    torch::Tensor steps{};             ///< int64; undefined if steps are not counted
    torch::Tensor number{};            ///< DeviceStep::number of the current step
  };

  /// `steps[i]` is the count of parameter i so far; `takes_part[i]` says whether it has a gradient.
  /// Without `counts_steps` nothing is kept on the device.
  DeviceCounts(const std::vector<bool>& takes_part, const std::int64_t* steps, bool counts_steps,
               torch::Device device);

  /// Whether the same parameters take part as at construction.
  bool fit(const std::vector<bool>& takes_part) const { return takes_part == takes_part_; }
  const std::vector<Count>& counts() const { return counts_; }

  /// Counts a step of all members, unless `found_inf` is defined and not 0. Does not wait for the
  /// device.
  void advance(const torch::Tensor& found_inf);
  /// Writes the counts to `steps`, by parameter. Waits for the device.
  void fetch(std::int64_t* steps) const;

 private:
  std::vector<bool> takes_part_;
  std::vector<Count> counts_;
};

}  // namespace lockstep::detail
