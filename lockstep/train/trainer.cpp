#include <lockstep/train/trainer.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/train/training_run.h>

namespace lockstep {

Trainer::Trainer(TrainerOptions options, std::unique_ptr<Strategy> strategy)
    : options_(std::move(options)), strategy_(std::move(strategy)) {
  const OptionCheck check("Trainer");
  // Times the steps of an epoch this stays far from the end of 64 bits.
  check.in_range("max_epochs", static_cast<double>(options_.max_epochs), 1, 1e9);
  if (options_.max_steps) {
    check.at_least("max_steps", static_cast<double>(*options_.max_steps), 1);
  }
  check.in_range("accumulate_grad_batches",
                 static_cast<double>(options_.accumulate_grad_batches), 1, 1e9);
  if (options_.limit_test_batches) {
    check.at_least("limit_test_batches", static_cast<double>(*options_.limit_test_batches), 0);
  }
  if (options_.gradient_clip_norm) {
    check.positive("gradient_clip_norm", *options_.gradient_clip_norm);
  }
  validate(options_.schedule);
  if (options_.resume && options_.checkpoint.empty()) {
    throw ConfigError("Trainer: resume needs a checkpoint; give --out DIR");
  }
  if (!options_.command_seconds) {
    options_.command_seconds = [start = Clock::now()] { return seconds_since(start); };
  }
}

RunReport Trainer::fit(Task& task, Loader& train_loader, const LoaderFactory& test_loader) {
  return TrainingRun(options_, *strategy_, task, train_loader, test_loader).run();
}

}  // namespace lockstep
