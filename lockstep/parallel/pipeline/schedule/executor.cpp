#include <lockstep/parallel/pipeline/schedule/executor.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/parallel/pipeline/schedule/mailboxes.h>

namespace lockstep::pipeline {
namespace {

bool is_abort(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StepAborted&) {
    return true;
  } catch (...) {
    return false;
  }
}

template <class Type>
[[noreturn]] void rethrow_as(const std::string& where, const std::exception& error) {
  std::throw_with_nested(Type(str(where, ": ", first_line(error))));
}

[[noreturn]] void rethrow_from(const std::string& where, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& caught) {  // before CommError, its base class
    rethrow_as<TimeoutError>(where, caught);
  } catch (const CommError& caught) {
    rethrow_as<CommError>(where, caught);
  } catch (const ConfigError& caught) {
    rethrow_as<ConfigError>(where, caught);
  } catch (const DataError& caught) {
    rethrow_as<DataError>(where, caught);
  } catch (const CheckpointError& caught) {
    rethrow_as<CheckpointError>(where, caught);
  } catch (const InternalError& caught) {
    rethrow_as<InternalError>(where, caught);
  } catch (const std::exception& caught) {
    rethrow_as<Error>(where, caught);
  } catch (...) {
    std::throw_with_nested(Error(where + ": " + kForeignException));
  }
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

std::optional<FailedAction> execute(const std::vector<Action>& actions, const Perform& perform,
                                    Recording& recording) {
  recording.times.clear();
  recording.times.reserve(actions.size() + 1);
  recording.times.push_back(Clock::now());
  for (const Action& action : actions) {
    try {
      perform(action);
    } catch (...) {
      return FailedAction{action, std::current_exception()};
    }
    recording.times.push_back(Clock::now());
    if (!is_recording()) continue;
    const auto end = recording.times.end();
    record_span(kind_name(action.kind), kind_category(action.kind), action.micro_batch, *(end - 2),
                *(end - 1), action.stage);
  }
  return std::nullopt;
}

void StepFailure::keep(int worker, FailedAction failed) {
  if (is_abort(failed.error)) return;
  const std::scoped_lock lock(mutex_);
  if (!first_) first_ = Failure{worker, std::move(failed)};
}

void StepFailure::check(const Table& table) const {
  if (!first_) return;
  const Action& action = first_->failed.action;
  rethrow_from(str("pipeline ", table.name, ": worker ", first_->worker, " failed in stage ",
                   action.stage, " at ", text(action)),
               first_->failed.error);
}

Timeline timeline_of(const std::vector<std::vector<Action>>& actions,
                     const std::vector<Recording>& recordings) {
  Clock::time_point begin = Clock::time_point::max();
  for (const Recording& each : recordings) {
    if (!each.times.empty()) begin = std::min(begin, each.times.front());
  }
  Timeline timeline;
  for (std::size_t worker = 0; worker < recordings.size(); ++worker) {
    const auto& times = recordings[worker].times;
    std::vector<Interval>& intervals = timeline.workers.emplace_back();
    for (std::size_t i = 0; i + 1 < times.size(); ++i) {
      intervals.push_back({actions[worker][i], seconds_between(begin, times[i]),
                           seconds_between(begin, times[i + 1])});
    }
    if (!intervals.empty()) timeline.end = std::max(timeline.end, intervals.back().end);
  }
  return timeline;
}

}  // namespace lockstep::pipeline
