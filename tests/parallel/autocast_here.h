// Enables autocast for the current thread, for tests of code that computes on other threads or in
// micro-batches.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep::testing_support {

/// Enables autocast to `type` on the CPU, with its cache of casts, on this thread for the lifetime
/// of the object.
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
  const detail::AutocastTypeScope type_;
};

}  // namespace lockstep::testing_support
