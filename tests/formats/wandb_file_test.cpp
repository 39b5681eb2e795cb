#include <lockstep/formats/wandb_file.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/wandb_records.h>

namespace lockstep::testing_support {
namespace {

TEST(WandbFrame, IsThatOfLevelDb) {
  EXPECT_EQ(formats::wandb_frame("abc", 7), std::string("\xA9\x20\x9D\x53\x03\x00\x01"
                                                        "abc",
                                                        10));
}

TEST(WandbFrame, CutsRecordsAtBlocks) {
  for (const std::size_t offset :
       {std::size_t{7}, std::size_t{100}, kWandbFileBlock - 10, kWandbFileBlock - 8,
        kWandbFileBlock - 7, kWandbFileBlock - 6, kWandbFileBlock - 1, kWandbFileBlock,
        3 * kWandbFileBlock - 20}) {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, kWandbFileBlock - 14, kWandbFileBlock - 7,
          kWandbFileBlock, kWandbFileBlock * 2 - 14, std::size_t{100'000}}) {
      std::string record(size, '\0');
      for (std::size_t i = 0; i < size; ++i) record[i] = static_cast<char>(i * 7 + i / 251);
      const std::string file = std::string(offset, 'h') + formats::wandb_frame(record, offset);
      EXPECT_EQ(wandb_records(file, offset), std::vector<std::string>{record})
          << offset << ", " << size;
    }
  }
}

class WandbFileTest : public testing::Test {
 protected:
  formats::WandbRun run() const {
    return {
        .id = "k3v9x0ab", .project = "digits", .name = "mnist", .host = "host", .start_time = 10};
  }
  TemporaryDirectory directory_;
};

TEST_F(WandbFileTest, BeginsWithHeaderAndRun) {
  const formats::WandbFile file(directory_ / "run.wandb", run());
  const std::string content = read_text(file.path());
  EXPECT_EQ(content.substr(0, 7), std::string(":W&B\xE1\xBE\0", 7));
  const std::vector<std::string> records = wandb_records(content);
  ASSERT_EQ(records.size(), 2U);
  // number 1; header { version_info { producer } }
  EXPECT_EQ(records[0], std::string("\x08\x01\xAA\x01\x0C\x0A\x0A\x0A\x08lockstep", 17));
  // number 2; run { run_id, project, display_name, host, start_time { seconds: 10, nanos: 0 } }
  EXPECT_EQ(records[1], std::string("\x08\x02\x8A\x01\x26"
                                    "\x0A\x08k3v9x0ab"
                                    "\x1A\x06"
                                    "digits"
                                    "\x42\x05mnist"
                                    "\x6A\x04host"
                                    "\x8A\x01\x04\x08\x0A\x10\x00",
                                    43));
}

TEST_F(WandbFileTest, WritesRowsWithStepAndTimes) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  const NamedValue numbers[] = {{"loss", 0.25},
                                {"nan", std::numeric_limits<double>::quiet_NaN()},
                                {"down", -std::numeric_limits<double>::infinity()}};
  file.add_history({.step = 300, .time = 12.5}, numbers);
  const std::string row = wandb_records(read_text(file.path())).back();
  const auto item = [](std::string_view key, std::string_view json) {
    std::string text = "\x0A";
    text += static_cast<char>(key.size());
    text.append(key).append("\x82\x01");
    text += static_cast<char>(json.size());
    return text.append(json);
  };
  for (const std::string& each :
       {item("loss", "0.25"), item("nan", "NaN"), item("down", "-Infinity"), item("_step", "300"),
        item("_runtime", "2.5"), item("_timestamp", "12.5")}) {
    EXPECT_NE(row.find(each), std::string::npos) << each;
  }
  EXPECT_TRUE(row.ends_with(std::string("\x12\x03\x08\xAC\x02", 5))) << "step { num: 300 }";
}

// A step beyond 32 bits, in both of its places. Each call has its own record and number.
TEST_F(WandbFileTest, WritesOtherValuesOfARowAndLargeSteps) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  file.add_history({.step = 0, .time = 10}, {});
  const formats::WandbValue values[] = {{"image", "{\"x\":1}"}, {"list", "[2]"}};
  file.add_history({.step = std::int64_t{1} << 40, .time = 10}, {}, values);
  const std::vector<std::string> records = wandb_records(read_text(file.path()));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_TRUE(records[2].starts_with("\x08\x03\x12"));
  EXPECT_TRUE(records[2].ends_with(std::string("\x12\x02\x08\x00", 4)));
  // number 4; history { item { "image", ... } item { "list", ... } item { "_step", ... } ... }
  EXPECT_TRUE(
      records[3].starts_with("\x08\x04\x12\x66"
                             "\x0A\x11\x0A\x05image\x82\x01\x07{\"x\":1}"
                             "\x0A\x0C\x0A\x04list\x82\x01\x03[2]"
                             "\x0A\x17\x0A\x05_step\x82\x01\x0D"
                             "1099511627776"))
      << records[3];
  EXPECT_TRUE(records[3].ends_with("\x12\x07\x08\x80\x80\x80\x80\x80\x20"));
}

TEST_F(WandbFileTest, SummarizesNumbersAndOtherValues) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  const NamedValue numbers[] = {{"loss", 0.25}};
  const formats::WandbValue values[] = {{"table", "{\"_type\":\"table-file\"}"}};
  file.add_summary(numbers, values);
  const std::string record = wandb_records(read_text(file.path())).back();
  // number 3; summary { update { "loss", "0.25" } update { "table", {...} } }
  EXPECT_EQ(record, std::string("\x08\x03\x1A\x31"
                                "\x0A\x0D\x0A\x04loss\x82\x01\x04"
                                "0.25\x0A\x20\x0A\x05table\x82\x01\x16"
                                "{\"_type\":\"table-file\"}"));
}

TEST_F(WandbFileTest, WritesOnlyUtf8) {
  formats::WandbRun named = run();
  named.name = "mnist\xFF";
  formats::WandbFile file(directory_ / "run.wandb", named);
  const NamedValue numbers[] = {{"loss\xFF", 0.25}};
  file.add_history({.step = 1, .time = 12}, numbers);
  const std::vector<std::string> records = wandb_records(read_text(file.path()));
  ASSERT_EQ(records.size(), 3U);
  EXPECT_NE(records[1].find("mnist\\xff"), std::string::npos);
  EXPECT_NE(records[2].find("loss\\xff"), std::string::npos);
}

TEST_F(WandbFileTest, EndsWithExitFinalAndFooter) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  file.end_run(1, 70);
  const std::vector<std::string> records = wandb_records(read_text(file.path()));
  ASSERT_EQ(records.size(), 5U);
  EXPECT_EQ(records[2], std::string("\x08\x03\x92\x01\x04\x08\x01\x10\x3C", 9))
      << "exit code 1, 60 s";
  EXPECT_EQ(records[3], std::string("\x08\x04\xA2\x01\x00", 5));
  EXPECT_EQ(records[4], std::string("\x08\x05\xB2\x01\x00", 5));
}

TEST_F(WandbFileTest, CanBeReadUpToTheLastWholeRecordWhereverItIsCut) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  for (int step = 1; step <= 3; ++step) {
    const std::string image(20'000, static_cast<char>('a' + step));
    const formats::WandbValue values[] = {{"image", image}};
    file.add_history({.step = step, .time = 11}, {}, values);
  }
  const std::string content = read_text(file.path());
  const std::size_t all = wandb_records(content).size();
  EXPECT_EQ(all, 5U);
  std::size_t last = 0;
  for (std::size_t size = 7; size <= content.size(); size += 97) {
    const std::size_t count = wandb_records(content.substr(0, size)).size();
    EXPECT_GE(count, last);
    last = count;
  }
  EXPECT_EQ(wandb_records(content.substr(0, content.size() - 1)).size(), all - 1);
}

TEST_F(WandbFileTest, DoesNotTouchTheFileOfAnotherRun) {
  directory_.write("run.wandb", "precious");
  const std::string path = (directory_ / "run.wandb").string();
  EXPECT_EQ(message_of<DataError>([&] { formats::WandbFile(path, run()); }),
            "cannot write " + path + ": File exists");
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}

TEST_F(WandbFileTest, KeepsTheFractionOfTheStartTime) {
  formats::WandbRun late = run();
  late.start_time = 1'700'000'000.25;
  const formats::WandbFile file(directory_ / "run.wandb", late);
  const std::string timestamp = "\x08" + varint(1'700'000'000) + "\x10" + varint(250'000'000);
  const std::string field =
      "\x8A\x01" + std::string(1, static_cast<char>(timestamp.size())) + timestamp;
  EXPECT_TRUE(wandb_records(read_text(file.path())).back().ends_with(field))
      << "start_time { seconds, nanoseconds }";
}

TEST_F(WandbFileTest, ListsParametersAndFiles) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  const std::vector<HyperParameter> parameters{{"lr", 0.5}, {"net", std::string("a\"b")}};
  file.add_config(parameters);
  file.add_file("media/a.png");
  const std::vector<std::string> records = wandb_records(read_text(file.path()));
  ASSERT_EQ(records.size(), 4U);
  // number 3; config { update { "lr", "0.5" } update { "net", "\"a\\\"b\"" } }
  EXPECT_EQ(records[2],
            "\x08\x03\x2A\x1C"
            "\x0A\x0A\x0A\x02lr\x82\x01\x03"
            "0.5\x0A\x0E\x0A\x03net\x82\x01\x06\"a\\\"b\"");
  // number 4; files { files { path } }
  EXPECT_EQ(records[3], "\x08\x04\x32\x0F\x0A\x0D\x0A\x0Bmedia/a.png");
}

// The clock may have been set back since the run began.
TEST_F(WandbFileTest, HasNoRuntimeBelowZero) {
  formats::WandbFile file(directory_ / "run.wandb", run());
  file.end_run(0, 5);
  const std::vector<std::string> records = wandb_records(read_text(file.path()));
  ASSERT_EQ(records.size(), 5U);
  EXPECT_EQ(records[2], std::string("\x08\x03\x92\x01\x04\x08\x00\x10\x00", 9));
}

}  // namespace
}  // namespace lockstep::testing_support
