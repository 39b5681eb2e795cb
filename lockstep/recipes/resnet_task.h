// Classification with a ResNet, whole or in stages.
#pragma once

#include <memory>

#include <lockstep/models/resnet.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

/// A task that trains `net` with cross-entropy. Its stages end where resnet_cuts() cuts the model.
std::unique_ptr<Task> make_resnet_task(const ResNet& net);

}  // namespace lockstep::recipes
