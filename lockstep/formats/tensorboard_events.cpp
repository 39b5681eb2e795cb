#include <lockstep/formats/tensorboard_events.h>

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <variant>
#include <vector>

#include <protozero/pbf_writer.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/crc32c.h>
#include <lockstep/formats/logged_text.h>

namespace lockstep::formats {
namespace {

using Message = protozero::pbf_writer;

// Field numbers and enumeration values, from the .proto files that the header lists.
namespace tb {
enum EventField : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5
};
enum SummaryField : protozero::pbf_tag_type { kValue = 1 };
enum ValueField : protozero::pbf_tag_type {
  kTag = 1,
  kSimpleValue = 2,
  kImage = 4,
  kHistogram = 5,
  kTensor = 8,
  kMetadata = 9
};
enum ImageField : protozero::pbf_tag_type {
  kHeight = 1,
  kWidth = 2,
  kColorSpace = 3,
  kEncoded = 4
};
enum HistogramField : protozero::pbf_tag_type {
  kMinimum = 1,
  kMaximum = 2,
  kCount = 3,
  kSum = 4,
  kSumOfSquares = 5,
  kBucketLimits = 6,
  kBuckets = 7
};
enum MetadataField : protozero::pbf_tag_type { kPluginData = 1 };
enum PluginField : protozero::pbf_tag_type { kPluginName = 1, kPluginContent = 2 };
enum TensorField : protozero::pbf_tag_type { kDtype = 1, kShape = 2, kStringValue = 8 };
enum ShapeField : protozero::pbf_tag_type { kDimension = 2 };
enum DimensionField : protozero::pbf_tag_type { kSize = 1 };
constexpr std::int32_t kRgb = 3;
constexpr std::int32_t kDtString = 7;
}  // namespace tb

namespace hparams {
enum PluginDataField : protozero::pbf_tag_type { kSessionStart = 3, kSessionEnd = 4 };
enum SessionStartField : protozero::pbf_tag_type {
  kParameters = 1,
  kGroupName = 4,
  kStartTime = 5
};
enum SessionEndField : protozero::pbf_tag_type { kStatus = 1, kEndTime = 2 };
enum MapEntryField : protozero::pbf_tag_type { kKey = 1, kMapValue = 2 };
enum StructValueField : protozero::pbf_tag_type { kNumber = 2, kString = 3, kBool = 4 };
enum Status : std::int32_t { kSuccess = 1, kFailure = 2 };
}  // namespace hparams

void add_text_field(Message& to, protozero::pbf_tag_type field, std::string_view text) {
  std::string replaced;
  const std::string_view utf8 = as_utf8(text, replaced);
  to.add_string(field, utf8.data(), utf8.size());
}

template <class Unsigned>
void append_little_endian(std::string& to, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

void append_record(std::string& to, std::string_view event) {
  std::string length;
  append_little_endian(length, static_cast<std::uint64_t>(event.size()));
  to += length;
  append_little_endian(to, masked_crc32c(length));
  to += event;
  append_little_endian(to, masked_crc32c(event));
}

std::string event_file_name(double time) {
  static std::atomic<unsigned> counter{0};
  char seconds[24];
  std::snprintf(seconds, sizeof(seconds), "%010lld", static_cast<long long>(time));
  return str("events.out.tfevents.", seconds, '.', host_name(), '.', getpid(), '.', counter++);
}

void begin_event(Message& event, const LogMoment& moment) {
  event.add_double(tb::kWallTime, moment.time);
  event.add_int64(tb::kStep, moment.step);
}

void add_plugin(Message& value, std::string_view plugin, const std::string& content) {
  Message metadata(value, tb::kMetadata);
  Message data(metadata, tb::kPluginData);
  add_text_field(data, tb::kPluginName, plugin);
  data.add_bytes(tb::kPluginContent, content);
}

void add_struct_value(Message& to, const HyperParameter& parameter) {
  if (const bool* flag = std::get_if<bool>(&parameter.value)) {
    to.add_bool(hparams::kBool, *flag);
  } else if (const auto* text = std::get_if<std::string>(&parameter.value)) {
    add_text_field(to, hparams::kString, *text);
  } else if (const auto* whole = std::get_if<std::int64_t>(&parameter.value)) {
    to.add_double(hparams::kNumber, static_cast<double>(*whole));
  } else {
    to.add_double(hparams::kNumber, std::get<double>(parameter.value));
  }
}

void encode_session_start(std::string& content, double time, std::string_view run,
                          std::span<const HyperParameter> parameters) {
  Message plugin_data(content);
  Message session(plugin_data, hparams::kSessionStart);
  for (const HyperParameter& parameter : parameters) {
    Message entry(session, hparams::kParameters);
    add_text_field(entry, hparams::kKey, parameter.name);
    Message value(entry, hparams::kMapValue);
    add_struct_value(value, parameter);
  }
  add_text_field(session, hparams::kGroupName, run);
  session.add_double(hparams::kStartTime, time);
}

void encode_session_end(std::string& content, double time, bool success) {
  Message plugin_data(content);
  Message session(plugin_data, hparams::kSessionEnd);
  session.add_enum(hparams::kStatus, success ? hparams::kSuccess : hparams::kFailure);
  session.add_double(hparams::kEndTime, time);
}

void encode_session_event(std::string& event_bytes, double time, std::string_view tag,
                          const std::string& content) {
  Message event(event_bytes);
  begin_event(event, {.step = 0, .time = time});
  Message summary(event, tb::kSummary);
  Message value(summary, tb::kValue);
  add_text_field(value, tb::kTag, tag);
  add_plugin(value, "hparams", content);
}

}  // namespace

std::string tensorboard_record(std::string_view event) {
  std::string record;
  append_record(record, event);
  return record;
}

TensorBoardFile::TensorBoardFile(const std::filesystem::path& folder, double time)
    : file_(folder / event_file_name(time), AppendMode::kCreate) {
  Message event(event_);
  event.add_double(tb::kWallTime, time);
  add_text_field(event, tb::kFileVersion, "brain.Event:2");
  write_event();
}

void TensorBoardFile::add_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  {
    Message event(event_);
    begin_event(event, moment);
    Message summary(event, tb::kSummary);
    for (const auto& [name, number] : values) {
      Message value(summary, tb::kValue);
      add_text_field(value, tb::kTag, name);
      value.add_float(tb::kSimpleValue, static_cast<float>(number));
    }
  }
  write_event();
}

void TensorBoardFile::add_histogram(const LogMoment& moment, std::string_view name,
                                    const Histogram& histogram) {
  const auto& [edges, counts, sum, sum_of_squares] = histogram;
  LOCKSTEP_CHECK(edges.size() == counts.size() + 1 || (edges.empty() && counts.empty()),
                 "a histogram of ", counts.size(), " bins and ", edges.size(), " edges");
  double count = 0;
  for (const double each : counts) count += each;
  // A bucket ends at its limit. The first bucket is empty and states where the second begins. It
  // must exist even if there are no values.
  std::vector<double> limits = edges;
  std::vector<double> buckets(1, 0.0);
  buckets.insert(buckets.end(), counts.begin(), counts.end());
  if (limits.empty()) limits.push_back(0);
  {
    Message event(event_);
    begin_event(event, moment);
    Message summary(event, tb::kSummary);
    Message value(summary, tb::kValue);
    add_text_field(value, tb::kTag, name);
    Message message(value, tb::kHistogram);
    message.add_double(tb::kMinimum, limits.front());
    message.add_double(tb::kMaximum, limits.back());
    message.add_double(tb::kCount, count);
    message.add_double(tb::kSum, sum);
    message.add_double(tb::kSumOfSquares, sum_of_squares);
    message.add_packed_double(tb::kBucketLimits, limits.begin(), limits.end());
    message.add_packed_double(tb::kBuckets, buckets.begin(), buckets.end());
  }
  write_event();
}

void TensorBoardFile::add_image(const LogMoment& moment, std::string_view name,
                                std::string_view png, int width, int height) {
  {
    Message event(event_);
    begin_event(event, moment);
    Message summary(event, tb::kSummary);
    Message value(summary, tb::kValue);
    add_text_field(value, tb::kTag, name);
    Message image(value, tb::kImage);
    image.add_int32(tb::kHeight, height);
    image.add_int32(tb::kWidth, width);
    image.add_int32(tb::kColorSpace, tb::kRgb);
    image.add_bytes(tb::kEncoded, png.data(), png.size());
  }
  write_event();
}

void TensorBoardFile::add_text(const LogMoment& moment, std::string_view name,
                               std::string_view text) {
  {
    Message event(event_);
    begin_event(event, moment);
    Message summary(event, tb::kSummary);
    Message value(summary, tb::kValue);
    add_text_field(value, tb::kTag, name);
    {
      Message tensor(value, tb::kTensor);
      tensor.add_enum(tb::kDtype, tb::kDtString);
      {
        Message shape(tensor, tb::kShape);
        Message dimension(shape, tb::kDimension);
        dimension.add_int64(tb::kSize, 1);
      }
      add_text_field(tensor, tb::kStringValue, text);
    }
    add_plugin(value, "text", "");
  }
  write_event();
}

void TensorBoardFile::begin_session(double time, std::string_view run,
                                    std::span<const HyperParameter> parameters) {
  std::string content;
  encode_session_start(content, time, run, parameters);
  encode_session_event(event_, time, "_hparams_/session_start_info", content);
  write_event();
}

void TensorBoardFile::end_session(double time, bool success) {
  std::string content;
  encode_session_end(content, time, success);
  encode_session_event(event_, time, "_hparams_/session_end_info", content);
  write_event();
}

void TensorBoardFile::write_event() {
  record_.clear();
  append_record(record_, event_);
  event_.clear();
  file_.append(record_);
}

}  // namespace lockstep::formats
