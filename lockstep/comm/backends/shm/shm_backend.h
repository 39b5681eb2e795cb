// The shared-memory engine as a backend of process groups.
#pragma once

#include <chrono>
#include <memory>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/shm/engine.h>

namespace lockstep::shm {

/// `timeout` bounds every wait that has no timeout of its own.
std::shared_ptr<comm::Backend> make(std::shared_ptr<Engine> engine,
                                    std::chrono::milliseconds timeout);

}  // namespace lockstep::shm
