#include <lockstep/comm/backends/gloo/pairwise_work.h>

#include <functional>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {

PairwiseWork::PairwiseWork(std::shared_ptr<GlooContext> context, Call call,
                           std::vector<Exchange> exchanges)
    : context_(std::move(context)),
      call_(std::move(call)),
      ticket_(context_->watchdog().started(call_.description, call_.number)),
      exchanges_(std::move(exchanges)) {}

PairwiseWork::~PairwiseWork() {
  if (!outcome_.has_ended()) context_->watchdog().completed(ticket_);
}

void PairwiseWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!outcome_.has_ended()) {
    const Deadline deadline(timeout.value_or(context_->options().timeout));
    move([&](Work& work) {
      if (deadline.expired()) {
        context_->time_out(call_, timeout.value_or(context_->options().timeout));
      }
      work.wait(std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
      return true;
    });
  }
  outcome_.rethrow();
}

bool PairwiseWork::is_completed() {
  return outcome_.has_ended() || move([](Work& work) {
           if (!work.is_completed()) return false;
           if (const auto error = work.error()) std::rethrow_exception(error);
           return true;
         });
}

// Compares all sizes before it waits for a piece, because a piece of another size never arrives.
bool PairwiseWork::move(const std::function<bool(Work&)>& complete) {
  try {
    for (Exchange& each : exchanges_) {
      while (!each.sizes.empty()) {
        if (!complete(*each.sizes.back())) return false;
        each.sizes.pop_back();
      }
      compare(each);
    }
    for (Exchange& each : exchanges_) {
      while (!each.pieces.empty()) {
        if (!complete(*each.pieces.back())) return false;
        each.pieces.pop_back();
      }
    }
    end(nullptr);
  } catch (...) {
    end(std::current_exception());
  }
  return true;
}

void PairwiseWork::compare(const Exchange& exchange) {
  const auto announced = exchange.announced.item<std::int64_t>();
  if (announced == exchange.expected) return;
  const auto& watchdog = context_->watchdog();
  context_->end_group(lockstep::str("rank ", watchdog.world_rank(exchange.source), " gives rank ",
                                    watchdog.world_rank(context_->rank()), " ", announced,
                                    " elements in ", call_.text(), ", which expects ",
                                    exchange.expected));
}

void PairwiseWork::end(std::exception_ptr error) {
  outcome_.end(std::move(error));
  exchanges_.clear();
  context_->watchdog().completed(ticket_);
}

}  // namespace lockstep::gloo
