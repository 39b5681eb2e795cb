#include <lockstep/train/global_modes.h>

#include <ATen/Context.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace lockstep {
namespace {

using torch::autograd::AnomalyMode;

// LibTorch returns the mode as an enum but sets it by name.
std::string present_matmul_precision() {
  return to_string(static_cast<MatmulPrecision>(at::globalContext().float32MatmulPrecision()));
}
static_assert(static_cast<int>(MatmulPrecision::kHighest) ==
                  static_cast<int>(at::Float32MatmulPrecision::HIGHEST) &&
              static_cast<int>(MatmulPrecision::kMedium) ==
                  static_cast<int>(at::Float32MatmulPrecision::MEDIUM));

}  // namespace

GlobalModes::GlobalModes(const GlobalModeOptions& options) : options_(options) {
  at::Context& context = at::globalContext();
  if (options_.deterministic) {
    former_algorithms_ = context.deterministicAlgorithms();
    former_warn_only_ = context.deterministicAlgorithmsWarnOnly();
    former_cudnn_ = context.deterministicCuDNN();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
  }
  former_benchmark_ = context.benchmarkCuDNN();
  if (options_.deterministic) context.setBenchmarkCuDNN(false);
  if (options_.cudnn_benchmark) context.setBenchmarkCuDNN(true);
  if (options_.detect_anomaly) {
    former_anomaly_ = AnomalyMode::is_enabled();
    former_check_nan_ = AnomalyMode::should_check_nan();
    AnomalyMode::set_enabled(true, /*check_nan=*/true);
  }
  if (options_.matmul_precision) {
    former_matmul_ = present_matmul_precision();
    context.setFloat32MatmulPrecision(to_string(*options_.matmul_precision));
  }
}

GlobalModes::~GlobalModes() {
  at::Context& context = at::globalContext();
  if (options_.deterministic) {
    context.setDeterministicAlgorithms(former_algorithms_, former_warn_only_);
    context.setDeterministicCuDNN(former_cudnn_);
  }
  if (options_.deterministic || options_.cudnn_benchmark) {
    context.setBenchmarkCuDNN(former_benchmark_);
  }
  if (options_.detect_anomaly) AnomalyMode::set_enabled(former_anomaly_, former_check_nan_);
  if (options_.matmul_precision) context.setFloat32MatmulPrecision(former_matmul_);
}

}  // namespace lockstep
