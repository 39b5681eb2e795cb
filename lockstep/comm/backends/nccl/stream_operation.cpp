#include <lockstep/comm/backends/nccl/stream_operation.h>

#include <utility>

namespace lockstep::nccl {

void StreamOperation::end(std::exception_ptr error) {
  std::vector<Listener> listeners;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    error_ = error;
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners) listener(error);
}

bool StreamOperation::has_ended() const {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

std::exception_ptr StreamOperation::error() const {
  const std::scoped_lock lock(mutex_);
  return error_;
}

void StreamOperation::on_end(Listener listener) {
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    if (!ended_) {
      listeners_.push_back(std::move(listener));
      return;
    }
    error = error_;
  }
  listener(error);
}

}  // namespace lockstep::nccl
