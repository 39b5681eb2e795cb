// Modes of LibTorch that hold for the whole process.
#pragma once

#include <optional>
#include <string>

#include <lockstep/train/optimization/matmul_precision.h>

namespace lockstep {

struct GlobalModeOptions {
  /// Operations without a deterministic implementation throw, and cuDNN does not choose algorithms
  /// by their speed (torch.use_deterministic_algorithms).
  bool deterministic = false;
  /// A backward that makes a value that is not a number throws and names the operation
  /// (torch.autograd.set_detect_anomaly).
  bool detect_anomaly = false;
  /// cuDNN tries its algorithms for each new shape and takes the fastest
  /// (torch.backends.cudnn.benchmark). Not with `deterministic`.
  bool cudnn_benchmark = false;
  /// torch.set_float32_matmul_precision; absent: as it is.
  std::optional<MatmulPrecision> matmul_precision{};
};

/// For as long as it lives the modes are on; afterwards they are as they were. Modes that the
/// options leave out do not change. All threads of the process are affected.
class GlobalModes {
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
