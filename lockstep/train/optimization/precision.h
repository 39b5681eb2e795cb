// The precision of the forward pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep::detail {
class AutocastTypeScope;
}  // namespace lockstep::detail

namespace lockstep {

enum class Precision {
  k32,  ///< float32 throughout
  /// LibTorch's autocast to float16, whose small gradients need a GradScaler. On CPUs it works, but
  /// is slower than float32.
  kFp16,
  /// LibTorch's autocast to bfloat16; parameters, gradients and optimizer stay float32. On
  /// processors without instructions for bfloat16, which `lockstep doctor` names, it is 5 to 20
  /// times slower than float32.
  kBf16,
};

/// "32", "16" or "bf16".
LOCKSTEP_API std::string to_string(Precision precision);
LOCKSTEP_API const std::vector<std::string>& precision_names();
/// The inverse of to_string(). Throws ConfigError for an unknown name.
LOCKSTEP_API Precision parse_precision(const std::string& name);

/// Enables autocast on this thread for its lifetime; does nothing with k32.
class LOCKSTEP_API AutocastScope {
 public:
  AutocastScope(Precision precision, torch::DeviceType device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const torch::DeviceType device_;
  std::unique_ptr<detail::AutocastTypeScope> type_;  // null with k32
  bool former_enabled_ = false;
};

}  // namespace lockstep
