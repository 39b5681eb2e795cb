// Numbers a group's calls, records them in the flight recorder, and dumps the recorder when the
// first call fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/call/collective.h>
#include <lockstep/comm/diagnostics/flight_recorder.h>

namespace lockstep::comm {

/// The call log of one group. Safe to use from several threads.
class CallLog {
 public:
  /// `recorder` is shared by a first group and all groups made from it. Dumps are written to
  /// `directory`.
  CallLog(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path directory,
          std::string group, std::vector<int> world_ranks);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  /// Assigns the call its number.
  void number(Collective& call) noexcept;
  /// Records the call and returns its id in the recorder.
  FlightRecorder::Id created(const Collective& call, bool begun = false) noexcept;
  void started(FlightRecorder::Id id) noexcept { recorder_->started(id); }
  void completed(FlightRecorder::Id id, int source) noexcept { recorder_->completed(id, source); }

  /// Records a failure. On the group's first failure the recorder is dumped and the returned error
  /// has the type of `error` and also names the location of the dump. On later failures `error` is
  /// returned unchanged. A ConfigError means that the call was wrong and the group is still usable;
  /// it does not count as a failure of the group.
  std::exception_ptr failed(FlightRecorder::Id id, std::exception_ptr error) noexcept;
  /// Like failed(), for a call for which no caller waits any more. If it is the group's first
  /// failure, the error is logged, and the next failed() returns the location of the dump.
  void failed_unseen(FlightRecorder::Id id, std::exception_ptr error) noexcept;

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  const std::filesystem::path& directory() const { return directory_; }

 private:
  bool dump_once() noexcept;
  std::exception_ptr with_place_of_dump(std::exception_ptr error);

  const std::shared_ptr<FlightRecorder> recorder_;
  const std::filesystem::path directory_;
  FlightRecorder::Group* const group_;
  std::atomic<std::uint64_t> collectives_{0};
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<bool> told_{false};  ///< whether the location of the dump has been reported
  std::mutex dump_mutex_;          ///< guards the members below
  bool dumped_ = false;
  std::string place_of_dump_;  ///< empty if the dump could not be written
};

/// The folder for dumps: `wanted` if set, else LOCKSTEP_FLIGHT_RECORDER, else this job's folder
/// inside user_flight_directory().
std::filesystem::path flight_recorder_directory(const std::optional<std::filesystem::path>& wanted,
                                                const std::string& job = "");

}  // namespace lockstep::comm
