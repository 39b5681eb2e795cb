// The backend of a group of one rank: every collective completes at once.
#pragma once

#include <memory>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::single {

/// `device` is where allocate() allocates.
std::shared_ptr<Backend> make(torch::Device device);

}  // namespace lockstep::single
