#include <lockstep/parallel/ddp/phased_work.h>

#include <utility>

#include <lockstep/core/clock.h>

namespace lockstep {

PhasedWork::PhasedWork(std::shared_ptr<Work> first, std::vector<Phase> rest)
    : current_(std::move(first)), rest_(std::move(rest)) {}

bool PhasedWork::advance(std::optional<std::chrono::milliseconds> timeout) {
  if (error_) std::rethrow_exception(error_);
  try {
    auto* phased = dynamic_cast<PhasedWork*>(current_.get());
    if (phased && phased->advance(timeout)) return true;
    if (current_) current_->wait(timeout);
    current_.reset();
    if (next_ == rest_.size()) return false;
    const Phase phase = std::exchange(rest_[next_++], nullptr);
    current_ = phase();
    return true;
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

bool PhasedWork::advance() { return advance(std::nullopt); }

void PhasedWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  const std::optional<Deadline> deadline =
      timeout ? std::optional<Deadline>(*timeout) : std::nullopt;
  const auto left = [&]() -> std::optional<std::chrono::milliseconds> {
    if (!deadline) return std::nullopt;
    return std::chrono::ceil<std::chrono::milliseconds>(deadline->remaining());
  };
  while (advance(left())) {
  }
}

bool PhasedWork::is_completed() {
  if (error_) return true;
  if (current_ && !current_->is_completed()) return false;
  return next_ == rest_.size() || error();
}

std::exception_ptr PhasedWork::error() const {
  return error_ || !current_ ? error_ : current_->error();
}

}  // namespace lockstep

namespace lockstep::detail {

void wait_for_all(const std::vector<std::shared_ptr<Work>>& works,
                  const std::function<void(std::size_t)>& waited) {
  for (bool more = true; more;) {
    more = false;
    for (const auto& work : works) {
      if (auto* phased = dynamic_cast<PhasedWork*>(work.get())) more = phased->advance() || more;
    }
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]->wait();
    if (waited) waited(i);
  }
}

}  // namespace lockstep::detail
