// Classification by a ResNet, whole or in stages.
#pragma once

#include <memory>

#include <lockstep/models/resnet.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

/// A task that trains `net` by cross-entropy. resnet_cuts() says where it is cut into stages.
std::unique_ptr<Task> make_resnet_task(const ResNet& net);

}  // namespace lockstep
