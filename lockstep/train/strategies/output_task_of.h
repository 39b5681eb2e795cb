// Checks the task of a strategy that computes with copies or parts of the module.
#pragma once

#include <string>

#include <lockstep/core/error.h>
#include <lockstep/train/task/task.h>

namespace lockstep::train {

/// Returns the interface of `task` if it is an OutputTask; otherwise throws a ConfigError that
/// names the strategy.
inline detail::OutputTaskBase& output_task_of(detail::TaskBase& task, const std::string& strategy) {
  auto* const output_task = dynamic_cast<detail::OutputTaskBase*>(&task);
  if (output_task != nullptr) return *output_task;
  throw ConfigError(lockstep::str("strategy ", strategy,
                                  " computes with copies or parts of the module, which this task "
                                  "does not allow; derive it from OutputTask, or use strategy "
                                  "ddp"));
}

}  // namespace lockstep::train
