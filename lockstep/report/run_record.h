// The record of a run in its folder, for `lockstep report` and later inspection.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/export.h>
#include <lockstep/train/task/listener.h>

namespace lockstep {

/// Facts about a run that its events do not contain.
struct LOCKSTEP_API RunOrigin {
  /// {"lockstep", "0.1.0"}, {"commit", "4ec0fe713eba"}, {"libtorch", "2.13.0"}
  std::map<std::string, std::string> versions{};
  std::string command{};  ///< as typed; recorded without passwords and tokens in addresses
  int local_ranks = 1;    ///< on rank 0's host; 0: unknown
  int processors = 0;     ///< available to the local ranks together
};

/// Writes `run.json` in a folder: the output of to_json() (json_report.h) and, in addition, "state"
/// ("running", "complete", "interrupted" or "failed"), "error" (if the run failed, or was killed
/// before it could record its end), "started" (UTC, as in "2026-11-25T13:00:00Z"), "host",
/// "processor" (its model), "usable_processors" (their number), "local_ranks", "versions",
/// "command", and "commands": of a resumed run also those that it had before, each with "command",
/// "started", "first_epoch", "first_step" (the optimizer steps of that epoch that were done
/// before), "last_epoch" (the last epoch that it completed and that still belongs to the run, or
/// null) and "seconds" (from its start until it ended or, if it was killed, until its last epoch
/// ended; absent if unknown). "seconds_total" is the sum of these, and "peak_rss_bytes" the largest
/// of all commands. "fractions" names the values of evaluations whose unit is
/// MetricUnit::kFraction. The file is replaced atomically when the run begins, after each epoch and
/// at its end, so that a killed run leaves its results so far. A resumed run keeps the earlier
/// epochs of the file. If it was already complete (RunInfo), the file stays as it was; only a state
/// other than "complete" becomes "complete", with the last evaluation. A new run removes the
/// trace.json of an earlier one.
class LOCKSTEP_API RunRecord : public Listener {
 public:
  /// RunInfo::resumed_from says whether the run resumes one. Creates `folder` when the run begins.
  explicit RunRecord(const std::filesystem::path& folder, RunOrigin origin = {});

  void on_run_begin(const RunInfo& info) override;
  void on_epoch_end(const EpochReport& report) override;
  void on_run_end(const RunReport& report) override;
  void on_exception(const std::exception& error) noexcept override;

 private:
  void write(const RunReport& report, const std::string& state) const;
  bool keeps_complete(const RunReport& report) const;

  const std::filesystem::path file_;
  const RunOrigin origin_;
  std::string started_{};
  std::string epochs_before_ = "[]";    // epochs of the resumed run, as JSON
  std::string commands_before_ = "[]";  // its commands, as JSON
  std::set<std::string> fractions_before_{};
  long long peak_before_ = 0;
  Clock::time_point begin_{};
  RunReport so_far_{};
  std::string error_{};
};

/// The epochs before number `before` in the run.json of `folder`: their numbers, times, phases,
/// losses and values. A file of an earlier version does not have the units of the values. Empty if
/// there is no such file or it cannot be read.
LOCKSTEP_API std::vector<EpochReport> recorded_epochs(const std::filesystem::path& folder,
                                                      std::int64_t before);

/// If the run.json in `folder` says that its run is running, replaces that state by `state`, such
/// as "failed", with `error` as the reason. For a caller that knows that the process which wrote
/// the file has ended. Does not throw; the log says if the file cannot be written.
LOCKSTEP_API void close_record(const std::filesystem::path& folder, const std::string& state,
                               const std::string& error);

/// The words of this process's command line except `left_out`, separated by blanks, with quotes
/// around words that a shell would split, and without passwords and tokens in addresses. Empty if
/// /proc is missing.
LOCKSTEP_API std::string command_line(const std::string& left_out = "");

}  // namespace lockstep
