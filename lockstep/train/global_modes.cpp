#include <lockstep/train/global_modes.h>

#include <ATen/Context.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace lockstep {

using torch::autograd::AnomalyMode;

GlobalModes::GlobalModes(bool deterministic, bool detect_anomaly)
    : deterministic_(deterministic), detect_anomaly_(detect_anomaly) {
  if (deterministic_) {
    at::Context& context = at::globalContext();
    former_algorithms_ = context.deterministicAlgorithms();
    former_warn_only_ = context.deterministicAlgorithmsWarnOnly();
    former_cudnn_ = context.deterministicCuDNN();
    former_benchmark_ = context.benchmarkCuDNN();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
  }
  if (detect_anomaly_) {
    former_anomaly_ = AnomalyMode::is_enabled();
    former_check_nan_ = AnomalyMode::should_check_nan();
    AnomalyMode::set_enabled(true, /*check_nan=*/true);
  }
}

GlobalModes::~GlobalModes() {
  if (deterministic_) {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(former_algorithms_, former_warn_only_);
    context.setDeterministicCuDNN(former_cudnn_);
    context.setBenchmarkCuDNN(former_benchmark_);
  }
  if (detect_anomaly_) AnomalyMode::set_enabled(former_anomaly_, former_check_nan_);
}

}  // namespace lockstep
