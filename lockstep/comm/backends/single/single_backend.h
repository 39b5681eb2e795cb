// The group of one: every collective is complete at once.
#pragma once

#include <memory>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::single {

/// `device` is where allocate() allocates.
std::shared_ptr<Backend> make(torch::Device device);

}  // namespace lockstep::single
