// Carries the dtype of autocast from one thread to another.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep::detail {

/// While it lives, this thread's autocast computes in `type` on devices of type `device`.
/// at::ThreadLocalState carries whether autocast is on, but not its dtype: another thread would use
/// LibTorch's default, bfloat16 on CPUs and float16 on GPUs.
class AutocastTypeScope {
 public:
  AutocastTypeScope(c10::DeviceType device, c10::ScalarType type)
      : device_(device), former_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_dtype(device, type);
  }
  ~AutocastTypeScope() { at::autocast::set_autocast_dtype(device_, former_); }
  AutocastTypeScope(const AutocastTypeScope&) = delete;
  AutocastTypeScope& operator=(const AutocastTypeScope&) = delete;

 private:
  const c10::DeviceType device_;
  const c10::ScalarType former_;
};

}  // namespace lockstep::detail
