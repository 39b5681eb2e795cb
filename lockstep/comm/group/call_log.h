// Numbers the calls of a group, keeps them in the flight recorder, and writes that at the first
// failure.
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

namespace lockstep {

/// One for each group. Safe to use from several threads.
class CallLog {
 public:
  /// `recorder` is shared by a first group and those made from it; its dumps go to `directory`.
  CallLog(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path directory,
          std::string group, std::vector<int> world_ranks);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  /// Gives the call its number.
  void number(Collective& call) noexcept;
  /// Records the call; returns its id in the recorder.
  FlightRecorder::Id created(const Collective& call, bool begun = false) noexcept;
  void started(FlightRecorder::Id id) noexcept { recorder_->started(id); }
  void completed(FlightRecorder::Id id, int source) noexcept { recorder_->completed(id, source); }

  /// Notes the failure. At the group's first one the recorder is written, and the result is
  /// `error`, of the same type, that says where; else `error` as it is. A ConfigError is that of a
  /// wrong call, after which the group goes on: none of the group's failures.
  std::exception_ptr failed(FlightRecorder::Id id, std::exception_ptr error) noexcept;
  /// As failed(), for a call that nobody waits for any more: the group's first failure is logged,
  /// and the next failed() returns where the recorder was written.
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
  std::atomic<bool> told_{false};  ///< where the recorder was written
  std::mutex dump_mutex_;          ///< guards what follows
  bool dumped_ = false;
  std::string place_of_dump_;  ///< empty: it could not be written
};

/// The folder that the options name, else LOCKSTEP_FLIGHT_RECORDER, else this job's in that of this
/// user, user_flight_directory().
std::filesystem::path flight_recorder_directory(const std::optional<std::filesystem::path>& wanted,
                                                const std::string& job = "");

}  // namespace lockstep
