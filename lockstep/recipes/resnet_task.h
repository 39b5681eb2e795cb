// Classification by a ResNet, whole or in stages.
#pragma once

#include <memory>

#include <lockstep/models/resnet.h>
#include <lockstep/train/task.h>

namespace lockstep {

/// Trains `net` by cross-entropy. Its stages are cut where resnet_cuts() says.
std::unique_ptr<Task> make_resnet_task(const ResNet& net);

}  // namespace lockstep
