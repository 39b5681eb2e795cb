// LibTorch's process-wide modes.
#pragma once

#include <optional>
#include <string>

#include <lockstep/core/export.h>
#include <lockstep/train/optimization/matmul_precision.h>

namespace lockstep {

struct LOCKSTEP_API GlobalModeOptions {
  /// Operations without a deterministic implementation throw, and cuDNN does not choose algorithms
  /// by speed (torch.use_deterministic_algorithms).
  bool deterministic = false;
  /// A backward that produces NaN throws and names the operation
  /// (torch.autograd.set_detect_anomaly).
  bool detect_anomaly = false;
  /// cuDNN times its algorithms for each new shape and uses the fastest
  /// (torch.backends.cudnn.benchmark). Cannot be combined with `deterministic`.
  bool cudnn_benchmark = false;
  /// As torch.set_float32_matmul_precision() sets it; if absent, the precision is unchanged.
  std::optional<MatmulPrecision> matmul_precision{};
};

/// Sets the modes for its lifetime and restores the previous ones afterwards. Modes that the
/// options leave out do not change. Affects all threads of the process.
class LOCKSTEP_API GlobalModes {
 public:
  explicit GlobalModes(const GlobalModeOptions& options);
  ~GlobalModes();
  GlobalModes(const GlobalModes&) = delete;
  GlobalModes& operator=(const GlobalModes&) = delete;

 private:
  const GlobalModeOptions options_;
  bool former_algorithms_ = false;
  bool former_warn_only_ = false;
  bool former_cudnn_ = false;
  bool former_benchmark_ = false;
  bool former_anomaly_ = false;
  bool former_check_nan_ = false;
  std::string former_matmul_;
};

}  // namespace lockstep
