// The shared-memory engine as a backend of process groups.
#pragma once

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/worker_environment.h>

namespace lockstep::shm {

/// Collective. Proves by a handshake over `store` that every rank can open rank 0's memory and watch
/// every other process, and makes the backend. Null on all ranks where the proof fails on any; then
/// `why_not` says which rank could not and why.
std::shared_ptr<Backend> try_connect(c10d::Store& store, const WorkerEnvironment& environment,
                                     std::chrono::milliseconds timeout, std::string& why_not);

}  // namespace lockstep::shm
