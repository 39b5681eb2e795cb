#include <lockstep/comm/backends/nccl/stream_operation.h>

#include <utility>

namespace lockstep::nccl {

void StreamOperation::end(std::exception_ptr error) {
  std::vector<Listener> listeners;
  {
    const std::scoped_lock lock(mutex_);
    if (!outcome_.end(error)) return;
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners) listener(error);
}

bool StreamOperation::has_ended() const {
  const std::scoped_lock lock(mutex_);
  return outcome_.has_ended();
}

std::exception_ptr StreamOperation::error() const {
  const std::scoped_lock lock(mutex_);
  return outcome_.error();
}

void StreamOperation::on_end(Listener listener) {
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    if (!outcome_.has_ended()) {
      listeners_.push_back(std::move(listener));
      return;
    }
    error = outcome_.error();
  }
  listener(error);
}

}  // namespace lockstep::nccl
