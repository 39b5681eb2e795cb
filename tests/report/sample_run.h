// A run for this room's tests to report on.
#pragma once

#include <lockstep/train/task/listener.h>

namespace lockstep::testing_support {

inline RunInfo sample_info() {
  RunInfo info;
  info.recipe = "mnist";
  info.strategy = "ddp";
  info.backend = "shm";
  info.loader = "native";
  info.precision = "32";
  info.device = "cpu";
  info.dataset = "MNIST";
  info.fused_kernels = true;
  info.world_size = 2;
  info.threads_per_rank = 1;
  info.global_batch = 128;
  info.max_epochs = 10;
  info.steps_per_epoch = 469;
  info.parameters = 21840;
  return info;
}

inline Evaluation sample_evaluation() {
  return {.loss = 0.0512,
          .values = {{.name = "accuracy", .value = 0.9842, .unit = MetricUnit::kFraction}},
          .samples = 10000};
}

inline EpochReport sample_epoch(std::int64_t epoch) {
  EpochReport report;
  report.epoch = epoch;
  report.steps = 469;
  report.seconds = 2;
  report.train_loss = 0.25 / static_cast<double>(epoch);
  report.images_per_second = 30000;
  report.phases = {
      .data = 0.1, .forward = 0.5, .backward = 1, .communication = 0.2, .optimizer = 0.1};
  report.rss_bytes = 250'000'000;
  report.test = sample_evaluation();
  return report;
}

inline RunReport sample_report(std::int64_t epochs) {
  RunReport report;
  report.info = sample_info();
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch)
    report.epochs.push_back(sample_epoch(epoch));
  report.test = sample_evaluation();
  report.seconds_to_first_step = 0.391;
  report.skipped_images = 3;
  report.seconds_total = 24.06;
  report.peak_rss_bytes = 312'400'000;
  return report;
}

}  // namespace lockstep::testing_support
