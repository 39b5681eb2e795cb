// The caller's autocast, for tests of what computes on other threads or in micro-batches.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep::testing_support {

/// Autocast to `type` on the CPU, for this thread, as long as the scope lives. Its cache of casts
/// is on.
class AutocastHere {
 public:
  explicit AutocastHere(torch::ScalarType type) : type_(at::kCPU, type) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~AutocastHere() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  AutocastHere(const AutocastHere&) = delete;
  AutocastHere& operator=(const AutocastHere&) = delete;

 private:
  const AutocastTypeScope type_;
};

}  // namespace lockstep::testing_support
