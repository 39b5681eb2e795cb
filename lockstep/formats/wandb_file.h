// run-ID.wandb, the file that an offline run of Weights & Biases leaves for `wandb sync`.
//
// It is a log in LevelDB's format: a header of 7 bytes (":W&B", 0xBEE1, version 0), then blocks of
// 32 KiB, the first of which includes the header. A record is cut into pieces that do not cross the
// end of a block. Each piece has a header: the CRC-32 of its type and payload (4 bytes), the length
// of its payload (2), and its type (1: the whole record, 2 to 4: its first, a middle and its last
// piece). A record's payload is a protobuf message Record of wandb/proto/wandb_internal.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/append_file.h>
#include <lockstep/formats/logged_values.h>

namespace lockstep::formats {

/// Frames `record` for a file that has `offset` bytes before it.
std::string wandb_frame(std::string_view record, std::uint64_t offset);

struct WandbRun {
  std::string id{};  ///< unique in the project; letters and digits
  std::string project{};
  std::string name{};  ///< the display name
  std::string host{};
  double start_time = 0;  ///< seconds since 1970
};

/// A value that is not a single number, as JSON in the form that wandb's own client writes.
struct WandbValue {
  std::string name{};
  std::string json{};
};

/// Every call writes one record, so the file of a killed run is readable up to the last one. wandb
/// 0.31 treats a run without end_run() as failed. Not thread-safe. Throws a DataError if the file
/// exists, or the disk is full or fails.
class WandbFile {
 public:
  WandbFile(const std::filesystem::path& path, const WandbRun& run);

  const std::filesystem::path& path() const { return file_.path(); }

  void add_config(std::span<const HyperParameter> parameters);
  /// One row: the step, the time since the run's start, and the values. Steps must ascend from row
  /// to row: the server joins rows of the same step and refuses earlier ones.
  void add_history(const LogMoment& moment, std::span<const NamedValue> numbers,
                   std::span<const WandbValue> values = {});
  /// Sets values in the table of runs. They replace earlier values of the same names.
  void add_summary(std::span<const NamedValue> numbers, std::span<const WandbValue> values = {});
  /// Registers a file for upload. It lies in the folder files/ beside this file.
  void add_file(std::string_view path_in_files);
  void end_run(int exit_code, double time);

 private:
  void write_record(std::string_view payload);
  std::int64_t next_number() { return ++records_; }

  AppendFile file_;
  std::string record_;  // record of the current call; kept to reuse its memory
  double start_time_;
  std::int64_t records_ = 0;
};

}  // namespace lockstep::formats
