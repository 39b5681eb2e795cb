// The adapter of LibTorch's Gloo to comm::Backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/adapter_options.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::gloo {

/// Whether Gloo itself does this reduction. If not, the adapter gathers the values and combines
/// them.
bool reduces(detail::DataType type, ReduceOp op);

struct GlooHooks {
  /// Tags Gloo's next collective, so that it matches only the same call on other ranks. May be
  /// empty.
  std::function<void(std::uint32_t tag)> tag_next{};
  /// Advances this rank's other operations while it waits here. Null if there are none.
  std::shared_ptr<comm::Progress> progress{};
};

/// `store` must belong to this group alone. See Watchdog for its use.
std::shared_ptr<comm::Backend> adapt(c10::intrusive_ptr<c10d::Backend> library,
                                     c10::intrusive_ptr<c10d::Store> store,
                                     c10d_adapter::AdapterOptions options, GlooHooks hooks = {});

}  // namespace lockstep::gloo
