// The adapter of NCCL, or of another library whose operations run in streams of a device, to
// comm::Backend. Does not depend on CUDA.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/adapter_options.h>
#include <lockstep/comm/backends/nccl/device_queries.h>

namespace lockstep::nccl {

/// `store` must belong to this group alone. See Watchdog for its use. `device` answers queries
/// about the operations.
std::shared_ptr<comm::Backend> adapt(
    c10::intrusive_ptr<c10d::Backend> library, c10::intrusive_ptr<c10d::Store> store,
    c10d_adapter::AdapterOptions options,
    std::shared_ptr<DeviceQueries> device = std::make_shared<DeviceQueries>());

}  // namespace lockstep::nccl
