#include <lockstep/train/measuring/epoch_usage.h>

#include <cmath>
#include <cstdint>

#include <lockstep/train/task/metrics.h>

namespace lockstep::train {
namespace {

void add_known(const char* name, double value, Metrics& means) {
  const bool is_known = !std::isnan(value);
  means.add_sum(name, is_known ? value : 0.0, is_known ? 1 : 0);
}

std::optional<double> known_mean(const Evaluation& mean, const char* name) {
  const double value = mean.value_of(name).value_or(std::nan(""));
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

void set_usage(const EpochClock::Use& processors, const std::optional<GpuUsage>& gpus,
               ProcessGroup& group, torch::Device device, EpochReport& report) {
  const std::int64_t counts = gpus ? 1 : 0;
  const GpuUsage usage = gpus.value_or(GpuUsage{});
  Metrics means;
  means.add_sum("processor seconds", processors.computed, 1);
  add_known("processor waits", processors.waited, means);
  add_known("busy processors", processors.busy / report.seconds, means);
  means.add_sum("GPU", usage.utilisation, counts);
  means.add_sum("GPU memory", usage.memory_utilisation, counts);
  means.add_sum("GPU bytes", static_cast<double>(usage.memory_bytes), counts);
  means.add_sum("GPU power", usage.power_watts, counts);
  means.all_reduce(group, device);
  const Evaluation mean = means.mean();
  report.processor_seconds = mean.value_of("processor seconds").value_or(0);
  report.processor_wait_seconds = known_mean(mean, "processor waits");
  report.busy_processors = known_mean(mean, "busy processors");
  const std::optional<double> utilisation = known_mean(mean, "GPU");
  if (!utilisation) return;
  report.gpu = GpuUsage{.utilisation = *utilisation,
                        .memory_utilisation = mean.value_of("GPU memory").value_or(0),
                        .memory_bytes = std::llround(mean.value_of("GPU bytes").value_or(0)),
                        .power_watts = mean.value_of("GPU power").value_or(0)};
}

}  // namespace lockstep::train
