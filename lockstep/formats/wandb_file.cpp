#include <lockstep/formats/wandb_file.h>

#include <libdeflate.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <protozero/pbf_writer.hpp>

#include <lockstep/core/error.h>
#include <lockstep/formats/logged_text.h>

namespace lockstep::formats {
namespace {

using WandbMessage = protozero::pbf_writer;

constexpr std::string_view kWandbHeader{":W&B\xE1\xBE\x00", 7};
constexpr std::size_t kWandbBlock = 32768;
constexpr std::size_t kPieceHeader = 7;

enum PieceType : char { kWholePiece = 1, kFirstPiece = 2, kMiddlePiece = 3, kLastPiece = 4 };

// Field numbers of wandb_internal.proto.
namespace wandb {
enum RecordField : protozero::pbf_tag_type {
  kNumber = 1,
  kHistory = 2,
  kSummary = 3,
  kConfig = 5,
  kFiles = 6,
  kRun = 17,
  kExit = 18,
  kFinal = 20,
  kHeader = 21,
  kFooter = 22
};
enum HeaderField : protozero::pbf_tag_type { kVersionInfo = 1 };
enum VersionField : protozero::pbf_tag_type { kProducer = 1 };
enum RunField : protozero::pbf_tag_type {
  kRunId = 1,
  kProject = 3,
  kDisplayName = 8,
  kHost = 13,
  kStartTime = 17
};
enum TimestampField : protozero::pbf_tag_type { kSeconds = 1, kNanoseconds = 2 };
enum ItemsField : protozero::pbf_tag_type { kItem = 1, kHistoryStep = 2 };
enum StepField : protozero::pbf_tag_type { kStepNumber = 1 };
enum ItemField : protozero::pbf_tag_type { kKey = 1, kValueJson = 16 };
enum FileField : protozero::pbf_tag_type { kPath = 1 };
enum ExitField : protozero::pbf_tag_type { kExitCode = 1, kRuntime = 2 };
}  // namespace wandb

// The spellings of Python's json module, which wandb's client writes and reads.
constexpr NumberWords kWandbNumberWords{"NaN", "Infinity", "-Infinity"};

void append_bytes_of(std::string& to, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

void append_piece(std::string& to, PieceType type, std::string_view piece) {
  const char type_byte = type;
  std::uint32_t crc = libdeflate_crc32(0, &type_byte, 1);
  crc = libdeflate_crc32(crc, piece.data(), piece.size());
  append_bytes_of(to, crc, 4);
  append_bytes_of(to, static_cast<std::uint32_t>(piece.size()), 2);
  to += type_byte;
  to += piece;
}

void add_wandb_text(WandbMessage& to, protozero::pbf_tag_type field, std::string_view text) {
  std::string replaced;
  const std::string_view utf8 = as_utf8(text, replaced);
  to.add_string(field, utf8.data(), utf8.size());
}

void add_wandb_item(WandbMessage& items, std::string_view key, std::string_view json) {
  WandbMessage item(items, wandb::kItem);
  add_wandb_text(item, wandb::kKey, key);
  item.add_string(wandb::kValueJson, json.data(), json.size());
}

void add_wandb_number(WandbMessage& items, std::string_view key, double value) {
  std::string json;
  append_number(json, value, kWandbNumberWords);
  add_wandb_item(items, key, json);
}

void add_timestamp(WandbMessage& to, protozero::pbf_tag_type field, double time) {
  const double seconds = std::floor(time);
  WandbMessage timestamp(to, field);
  timestamp.add_int64(wandb::kSeconds, static_cast<std::int64_t>(seconds));
  timestamp.add_int32(wandb::kNanoseconds, static_cast<std::int32_t>((time - seconds) * 1e9));
}

}  // namespace

std::string wandb_frame(std::string_view record, std::uint64_t offset) {
  std::string frame;
  std::size_t room = kWandbBlock - static_cast<std::size_t>(offset % kWandbBlock);
  if (room < kPieceHeader) {  // too short for the header of a piece
    frame.append(room, '\0');
    room = kWandbBlock;
  }
  bool first = true;
  do {
    const std::string_view piece = record.substr(0, std::min(record.size(), room - kPieceHeader));
    record.remove_prefix(piece.size());
    const bool last = record.empty();
    append_piece(frame,
                 first ? (last ? kWholePiece : kFirstPiece) : (last ? kLastPiece : kMiddlePiece),
                 piece);
    first = false;
    room = kWandbBlock;
  } while (!record.empty());
  return frame;
}

WandbFile::WandbFile(const std::filesystem::path& path, const WandbRun& run)
    : file_(path, AppendMode::kCreate), start_time_(run.start_time) {
  file_.append(kWandbHeader);
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage header(record, wandb::kHeader);
    WandbMessage version(header, wandb::kVersionInfo);
    version.add_string(wandb::kProducer, "lockstep");
  }
  write_record(record_);
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage message(record, wandb::kRun);
    add_wandb_text(message, wandb::kRunId, run.id);
    add_wandb_text(message, wandb::kProject, run.project);
    add_wandb_text(message, wandb::kDisplayName, run.name);
    add_wandb_text(message, wandb::kHost, run.host);
    add_timestamp(message, wandb::kStartTime, run.start_time);
  }
  write_record(record_);
}

void WandbFile::add_config(std::span<const HyperParameter> parameters) {
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage config(record, wandb::kConfig);
    for (const HyperParameter& parameter : parameters) {
      add_wandb_item(config, parameter.name, json_value(parameter));
    }
  }
  write_record(record_);
}

void WandbFile::add_history(const LogMoment& moment, std::span<const NamedValue> numbers,
                            std::span<const WandbValue> values) {
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage history(record, wandb::kHistory);
    for (const auto& [name, value] : numbers) add_wandb_number(history, name, value);
    for (const auto& [name, json] : values) add_wandb_item(history, name, json);
    add_wandb_item(history, "_step", std::to_string(moment.step));
    add_wandb_number(history, "_runtime", moment.time - start_time_);
    add_wandb_number(history, "_timestamp", moment.time);
    WandbMessage step(history, wandb::kHistoryStep);
    step.add_int64(wandb::kStepNumber, moment.step);
  }
  write_record(record_);
}

void WandbFile::add_summary(std::span<const NamedValue> numbers,
                            std::span<const WandbValue> values) {
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage summary(record, wandb::kSummary);
    for (const auto& [name, value] : numbers) add_wandb_number(summary, name, value);
    for (const auto& [name, json] : values) add_wandb_item(summary, name, json);
  }
  write_record(record_);
}

void WandbFile::add_file(std::string_view path_in_files) {
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage files(record, wandb::kFiles);
    WandbMessage file(files, wandb::kItem);
    file.add_string(wandb::kPath, path_in_files.data(), path_in_files.size());
  }
  write_record(record_);
}

void WandbFile::end_run(int exit_code, double time) {
  const auto runtime = static_cast<std::int32_t>(std::max(time - start_time_, 0.0));
  {
    WandbMessage record(record_);
    record.add_int64(wandb::kNumber, next_number());
    WandbMessage exit(record, wandb::kExit);
    exit.add_int32(wandb::kExitCode, exit_code);
    exit.add_int32(wandb::kRuntime, runtime);
  }
  write_record(record_);
  // wandb's own client ends with these two records. `wandb sync` of older versions waits for them.
  for (const wandb::RecordField field : {wandb::kFinal, wandb::kFooter}) {
    {
      WandbMessage record(record_);
      record.add_int64(wandb::kNumber, next_number());
      record.add_message(field, std::string());
    }
    write_record(record_);
  }
}

void WandbFile::write_record(std::string_view payload) {
  const std::string frame = wandb_frame(payload, file_.size());
  record_.clear();
  file_.append(frame);
}

}  // namespace lockstep::formats
