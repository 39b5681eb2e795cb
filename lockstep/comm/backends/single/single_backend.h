// The backend of a group of one rank. Every collective completes immediately.
#pragma once

#include <memory>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::single {

/// allocate() allocates memory on `device`.
std::shared_ptr<comm::Backend> make(torch::Device device);

}  // namespace lockstep::single
