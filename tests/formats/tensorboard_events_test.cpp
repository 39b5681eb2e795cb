#include <lockstep/formats/tensorboard_events.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/crc32c.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// The vectors of RFC 3720, B.4, and the check value of the polynomial.
TEST(Crc32c, IsThatOfTheStandard) {
  std::string ascending(32, '\0');
  for (int i = 0; i < 32; ++i) ascending[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(formats::crc32c(""), 0U);
  EXPECT_EQ(formats::crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(formats::crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(formats::crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(formats::crc32c(ascending), 0x46DD794EU);
}

TEST(Crc32c, IsMaskedAsInRecordFiles) {
  EXPECT_EQ(formats::masked_crc32c(""), 0xA282EAD8U);
  EXPECT_EQ(formats::masked_crc32c("123456789"), 0xC78AB0E5U);
  EXPECT_EQ(formats::masked_crc32c(std::string(32, '\0')), 0x0FD7FFFAU);
}

// The expected bytes, computed by a Python program from the definitions of the formats.
TEST(TensorBoardFile, WritesTheFormatToTheByte) {
  const TemporaryDirectory directory;
  formats::TensorBoardFile file(directory.path(), 1.5);
  EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents.0000000001."))
      << file.path();
  const std::string version =
      from_hex("1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(read_text(file.path()), version);
  const NamedValue values[] = {{"loss", 0.25}};
  file.add_scalars({.step = 7, .time = 2.5}, values);
  EXPECT_EQ(
      read_text(file.path()),
      version + from_hex("1a00000000000000129bd82d09000000000000044010072a0d0a0b0a046c6f737315"
                         "0000803ea884b989"));
}

TEST(TensorBoardFile, FramesAnEmptyEvent) {
  EXPECT_EQ(formats::tensorboard_record(""),
            std::string(8, '\0') + from_hex("29039807") + from_hex("d8ea82a2"));
}

// Checks the frames and returns their events.
std::vector<std::string> events_in(const std::string& content) {
  std::vector<std::string> events;
  for (std::size_t at = 0; at < content.size();) {
    std::uint64_t length = 0;
    std::uint32_t crc = 0;
    std::memcpy(&length, content.data() + at, 8);
    std::memcpy(&crc, content.data() + at + 8, 4);
    EXPECT_EQ(crc, formats::masked_crc32c(content.substr(at, 8)));
    events.push_back(content.substr(at + 12, length));
    std::memcpy(&crc, content.data() + at + 12 + length, 4);
    EXPECT_EQ(crc, formats::masked_crc32c(events.back()));
    at += 16 + length;
  }
  return events;
}

TEST(TensorBoardFile, WritesARecordForEachCall) {
  const TemporaryDirectory directory;
  formats::TensorBoardFile file(directory.path(), 1);
  const LogMoment moment{.step = 1, .time = 2};
  const NamedValue values[] = {{"a", 1}, {"b", 2}};
  file.add_scalars(moment, values);
  file.add_histogram(moment, "weights", {.edges = {0, 1, 2}, .counts = {3, 4}, .sum = 5});
  file.add_histogram(moment, "none", {});
  file.add_image(moment, "digits", "PNG bytes", 4, 2);
  file.add_text(moment, "note", "words");
  const std::vector<HyperParameter> parameters{{"lr", 0.1}, {"fused", true}, {"net", "small"}};
  file.begin_session(2, "run", parameters);
  file.end_session(3, true);
  const std::vector<std::string> events = events_in(read_text(file.path()));
  ASSERT_EQ(events.size(), 8U);
  EXPECT_NE(events[4].find("PNG bytes"), std::string::npos);
  EXPECT_NE(events[6].find("_hparams_/session_start_info"), std::string::npos);
}

// The bytes of a double, as a protobuf message has it.
std::string double_bytes(std::initializer_list<double> values) {
  std::string bytes;
  for (const double value : values) {
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    bytes.append(raw, sizeof(value));
  }
  return bytes;
}

// The messages of summary.proto, histogram.proto and plugin_data.proto of TensorBoard, field by
// field.
TEST(TensorBoardFile, HasTheFieldsOfEachMessage) {
  const TemporaryDirectory directory;
  formats::TensorBoardFile file(directory.path(), 1);
  const LogMoment moment{.step = 1, .time = 2};
  file.add_histogram(moment, "weights",
                     {.edges = {-1, 0.5, 2}, .counts = {3, 4}, .sum = 5, .sum_of_squares = 6});
  file.add_histogram(moment, "none", {});
  file.add_image(moment, "digits", "PNG bytes", 4, 2);
  file.add_text(moment, "note", "words");
  const std::vector<HyperParameter> parameters{
      {"lr", 0.25}, {"fused", true}, {"net", std::string("small")}, {"batch", std::int64_t{64}}};
  file.begin_session(2, "run", parameters);
  file.end_session(3, true);
  file.end_session(4, false);
  const std::vector<std::string> events = events_in(read_text(file.path()));
  ASSERT_EQ(events.size(), 8U);
  const auto expect_part = [&](std::size_t event, const std::string& part) {
    EXPECT_NE(events[event].find(part), std::string::npos) << event;
  };
  expect_part(1, "\x09" + double_bytes({-1}) + "\x11" + double_bytes({2}) + "\x19" +
                     double_bytes({7}) + "\x21" + double_bytes({5}) + "\x29" + double_bytes({6}) +
                     "\x32\x18" + double_bytes({-1, 0.5, 2}) + "\x3a\x18" +
                     double_bytes({0, 3, 4}));
  expect_part(2, "\x32\x08" + double_bytes({0}) + "\x3a\x08" + double_bytes({0}));
  expect_part(3,
              "\x0a\x06"
              "digits\x22\x11\x08\x02\x10\x04\x18\x03\x22\x09"
              "PNG bytes");
  expect_part(4,
              "\x08\x07\x12\x04\x12\x02\x08\x01\x42\x05"
              "words");
  expect_part(4, "\x0a\x04text");
  expect_part(5, "\x0a\x02lr\x12\x09\x11" + double_bytes({0.25}));
  expect_part(5,
              "\x0a\x05"
              "fused\x12\x02\x20\x01");
  expect_part(5, "\x0a\x03net\x12\x07\x1a\x05small");
  expect_part(5,
              "\x0a\x05"
              "batch\x12\x09\x11" +
                  double_bytes({64}));
  expect_part(5, "\x22\x03run\x29" + double_bytes({2}));
  expect_part(6, "\x22\x0b\x08\x01\x11" + double_bytes({3}));
  expect_part(7, "\x22\x0b\x08\x02\x11" + double_bytes({4}));
}

// An integer as a protobuf message has it, without its field.
std::string varint_bytes(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

// Numbers that a float or a 32-bit integer cannot hold.
TEST(TensorBoardFile, KeepsAllDigits) {
  const TemporaryDirectory directory;
  const double now = 1700000000.125;
  const std::int64_t step = (std::int64_t{1} << 40) + 1;
  formats::TensorBoardFile file(directory.path(), now);
  const std::vector<std::pair<HyperParameter, double>> parameters = {
      {{"a", std::int64_t{16777217}}, 16777217.0},  // 2^24 + 1
      {{"b", std::int64_t{-16777217}}, -16777217.0},
      {{"c", std::int64_t{4294967297}}, 4294967297.0},  // 2^32 + 1
      {{"d", std::int64_t{9007199254740991}}, 9007199254740991.0},
      {{"e", 0.1}, 0.1},
      {{"f", 1e300}, 1e300},
  };
  std::vector<HyperParameter> to_log;
  for (const auto& [parameter, number] : parameters) to_log.push_back(parameter);
  file.begin_session(now, "run", to_log);
  file.end_session(now, true);
  const LogMoment moment{.step = step, .time = now};
  const NamedValue values[] = {{"loss", 1}};
  file.add_scalars(moment, values);
  file.add_histogram(
      moment, "weights",
      {.edges = {-0.1, 0.1, 0.3}, .counts = {16777217, 1}, .sum = 0.7, .sum_of_squares = 1e300});
  file.add_image(moment, "digits", "PNG bytes", 70000, 300);
  file.add_text(moment, "note", "words");
  const std::vector<std::string> events = events_in(read_text(file.path()));
  ASSERT_EQ(events.size(), 7U);
  const auto expect_part = [&](std::size_t event, const std::string& part) {
    EXPECT_NE(events[event].find(part), std::string::npos) << event;
  };
  for (const std::string& event : events) {
    EXPECT_TRUE(event.starts_with("\x09" + double_bytes({now})));
  }
  for (const auto& [parameter, number] : parameters) {
    expect_part(1, "\x0a\x01" + parameter.name + "\x12\x09\x11" + double_bytes({number}));
  }
  expect_part(1, "\x29" + double_bytes({now}));
  expect_part(2, "\x11" + double_bytes({now}));
  for (std::size_t event = 3; event < events.size(); ++event) {
    expect_part(event, "\x10" + varint_bytes(static_cast<std::uint64_t>(step)));
  }
  expect_part(4, "\x09" + double_bytes({-0.1}) + "\x11" + double_bytes({0.3}) + "\x19" +
                     double_bytes({16777218}) + "\x21" + double_bytes({0.7}) + "\x29" +
                     double_bytes({1e300}) + "\x32\x18" + double_bytes({-0.1, 0.1, 0.3}) +
                     "\x3a\x18" + double_bytes({0, 16777217, 1}));
  expect_part(5, "\x08" + varint_bytes(300) + "\x10" + varint_bytes(70000));
}

// A single such name would stop TensorBoard from reading the rest of the file.
TEST(TensorBoardFile, WritesOnlyUtf8) {
  const TemporaryDirectory directory;
  formats::TensorBoardFile file(directory.path(), 1);
  const NamedValue values[] = {{"a\xFFz", 1}};
  file.add_scalars({.step = 1, .time = 2}, values);
  const std::vector<HyperParameter> parameters{{"data\xFF", std::string("/x/\xFF")}};
  file.begin_session(2, "run\xFF", parameters);
  const std::string content = read_text(file.path());
  EXPECT_EQ(content.find('\xFF'), std::string::npos);
  for (const char* text : {"a\\xffz", "data\\xff", "/x/\\xff", "run\\xff"}) {
    EXPECT_NE(content.find(text), std::string::npos) << text;
  }
}

TEST(TensorBoardFile, RefusesAHistogramThatIsNone) {
  const TemporaryDirectory directory;
  formats::TensorBoardFile file(directory.path(), 1);
  EXPECT_THROW(file.add_histogram({}, "x", {.edges = {0, 1}, .counts = {1, 1}}), InternalError);
}

TEST(TensorBoardFile, GivesEachFileOfAFolderItsName) {
  const TemporaryDirectory directory;
  const formats::TensorBoardFile first(directory.path(), 1);
  const formats::TensorBoardFile second(directory.path(), 1);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(directory.names().size(), 2U);
}

TEST(TensorBoardFile, NamesAFolderThatIsNot) {
  const std::string message =
      message_of<DataError>([] { formats::TensorBoardFile("/no-such-folder", 1); });
  EXPECT_TRUE(message.starts_with("cannot write /no-such-folder/events.out.tfevents.")) << message;
  EXPECT_TRUE(message.ends_with(": No such file or directory")) << message;
}

}  // namespace
}  // namespace lockstep::testing_support
