#include <lockstep/comm/group/call_log.h>

#include <utility>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {

CallLog::CallLog(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path directory,
                 std::string group, std::vector<int> world_ranks)
    : recorder_(std::move(recorder)),
      directory_(std::move(directory)),
      group_(recorder_->add_group(std::move(group), std::move(world_ranks))) {}

CallLog::~CallLog() { recorder_->remove_group(group_); }

void CallLog::number(Collective& call) noexcept {
  auto& counter = detail::is_message(call.description) ? messages_ : collectives_;
  call.number = counter.fetch_add(1, std::memory_order_relaxed);
}

namespace {

bool is_config_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

FlightRecorder::Id CallLog::created(const Collective& call, bool begun) noexcept {
  return recorder_->created(group_, call.number, call.description, begun);
}

std::exception_ptr CallLog::failed(FlightRecorder::Id id, std::exception_ptr error) noexcept {
  recorder_->failed(id);
  if (is_config_error(error)) return error;
  dump_once();
  return told_.exchange(true) ? error : with_place_of_dump(error);
}

void CallLog::failed_unseen(FlightRecorder::Id id, std::exception_ptr error) noexcept {
  recorder_->failed(id);
  if (!dump_once()) return;
  try {
    std::rethrow_exception(with_place_of_dump(error));
  } catch (const std::exception& caught) {
    log_error("operations on the device have failed, their tensors are undefined: ",
              first_line(caught));
  } catch (...) {
    log_error("operations on the device have failed, their tensors are undefined");
  }
}

// Returns true for the group's first failure.
bool CallLog::dump_once() noexcept {
  const std::scoped_lock lock(dump_mutex_);
  if (std::exchange(dumped_, true)) return false;
  try {
    place_of_dump_ = recorder_->dump(directory_).string();
  } catch (const std::exception& problem) {
    log_warning("the flight recorder was not written: ", first_line(problem));
  }
  return true;
}

std::exception_ptr CallLog::with_place_of_dump(std::exception_ptr error) {
  std::string where;
  {
    const std::scoped_lock lock(dump_mutex_);
    if (place_of_dump_.empty()) return error;
    where = lockstep::str("; flight recorder in ", place_of_dump_);
  }
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& late) {
    return std::make_exception_ptr(TimeoutError(late.what() + where));
  } catch (const CommError& failed) {
    return std::make_exception_ptr(CommError(failed.what() + where));
  } catch (...) {
    return error;  // an error of another library keeps its text
  }
}

std::filesystem::path flight_recorder_directory(const std::optional<std::filesystem::path>& wanted,
                                                const std::string& job) {
  if (wanted) return *wanted;
  if (const auto named = environment_string("LOCKSTEP_FLIGHT_RECORDER")) return *named;
  return job.empty() ? user_flight_directory() : user_flight_directory() / job;
}

}  // namespace lockstep::comm
