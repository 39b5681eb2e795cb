#include <lockstep/comm/call_log.h>

#include <utility>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {

CallLog::CallLog(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path directory,
                 std::string group, std::vector<int> world_ranks)
    : recorder_(std::move(recorder)),
      directory_(std::move(directory)),
      group_(recorder_->add_group(std::move(group), std::move(world_ranks))) {}

CallLog::~CallLog() { recorder_->remove_group(group_); }

void CallLog::number(Collective& call) noexcept {
  const CallKind kind = call.description.kind;
  const bool message = kind == CallKind::kSend || kind == CallKind::kRecv;
  call.number = (message ? messages_ : collectives_).fetch_add(1, std::memory_order_relaxed);
}

FlightRecorder::Id CallLog::created(const Collective& call, bool begun) noexcept {
  return recorder_->created(group_, call.number, call.description, begun);
}

std::exception_ptr CallLog::failed(FlightRecorder::Id id, std::exception_ptr error) noexcept {
  recorder_->failed(id);
  if (dumped_.exchange(true)) return error;
  try {
    return with_dump(error);
  } catch (const std::exception& problem) {
    log_warning("the flight recorder was not written: ", first_line(problem));
    return error;
  }
}

std::exception_ptr CallLog::with_dump(std::exception_ptr error) {
  const std::string where =
      lockstep::str("; flight recorder in ", recorder_->dump(directory_).string());
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& late) {
    return std::make_exception_ptr(TimeoutError(late.what() + where));
  } catch (const CommError& failed) {
    return std::make_exception_ptr(CommError(failed.what() + where));
  } catch (...) {
    return error;  // of another library: its text is its own
  }
}

std::filesystem::path flight_recorder_directory(const std::optional<std::filesystem::path>& wanted,
                                                const std::string& job) {
  if (wanted) return *wanted;
  if (const auto named = environment_string("LOCKSTEP_FLIGHT_RECORDER")) return *named;
  return job.empty() ? user_flight_directory() : user_flight_directory() / job;
}

}  // namespace lockstep
