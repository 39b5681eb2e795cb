#include <lockstep/formats/checkpoint_manifest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/formats/checksum.h>

namespace lockstep::formats {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

CheckpointManifest example() {
  return {.epoch = 2,
          .step = 60,
          .sequence = 3,
          .first_sequence = 1,
          .metrics = {{"loss", 0.1}, {"accuracy", 1}, {"tiny", -1e-300}},
          .files = {{"model.safetensors", {.bytes = 88920, .checksum = 0x05e8aecd2ac6e2d9}},
                    {"training.safetensors", {.bytes = 0, .checksum = 0}}}};
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "m.json");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

// The text of a manifest with the checksum that belongs to it.
std::string with_right_checksum(std::string text) {
  const std::string last = ",\n  \"xxh3_64\": \"";
  const std::size_t own = text.rfind(last);
  const std::string body = text.substr(0, own) + "\n}\n";
  const std::string sum = checksum_digits(checksum(std::as_bytes(std::span(body))));
  return text.replace(own + last.size(), sum.size(), sum);
}

TEST(CheckpointManifest, ReadsWhatItWrites) {
  const CheckpointManifest read = parse_manifest(serialize_manifest(example()), "m.json");
  EXPECT_EQ(read.epoch, 2);
  EXPECT_EQ(read.step, 60);
  EXPECT_EQ(read.sequence, 3);
  EXPECT_EQ(read.first_sequence, 1);
  EXPECT_EQ(read.metrics, example().metrics);
  ASSERT_EQ(read.files.size(), 2U);
  EXPECT_EQ(read.files.at("model.safetensors").bytes, 88920U);
  EXPECT_EQ(read.files.at("model.safetensors").checksum, 0x05e8aecd2ac6e2d9U);
}

TEST(CheckpointManifest, HasTheParentThatIsKnown) {
  CheckpointManifest manifest = example();
  EXPECT_EQ(serialize_manifest(manifest).find("parent"), std::string::npos);
  EXPECT_EQ(parse_manifest(serialize_manifest(manifest), "m.json").parent, 0);
  manifest.parent = 2;
  EXPECT_EQ(parse_manifest(serialize_manifest(manifest), "m.json").parent, 2);
}

// A file of a later version is intact, which its user must not take for damage.
TEST(CheckpointManifest, TellsAnotherFormatFromDamage) {
  std::string text = serialize_manifest(example());
  const std::string format = "lockstep checkpoint folder 1";
  text.replace(text.find(format), format.size(), "lockstep checkpoint folder 2");
  try {
    parse_manifest(with_right_checksum(text), "m.json");
    ADD_FAILURE() << "another format was accepted";
  } catch (const UnknownManifestError& error) {
    EXPECT_STREQ(error.what(),
                 "m.json has the format 'lockstep checkpoint folder 2', which this version does "
                 "not know; it reads 'lockstep checkpoint folder 1'");
  }
}

// A metric of a class whose name is no UTF-8.
TEST(CheckpointManifest, KeepsNamesThatAreNoTextApart) {
  CheckpointManifest manifest = example();
  manifest.metrics = {{"accuracy/caf\xE9", 0.5}, {"accuracy/caf\xE8", 0.25}};
  const CheckpointManifest read = parse_manifest(serialize_manifest(manifest), "m.json");
  EXPECT_EQ(read.metrics, (std::map<std::string, double>{{"accuracy/caf\\xe9", 0.5},
                                                         {"accuracy/caf\\xe8", 0.25}}));
}

TEST(CheckpointManifest, SaysOnlyIfAValueIsNotFinite) {
  CheckpointManifest manifest = example();
  const std::string text = serialize_manifest(manifest);
  EXPECT_EQ(text.find("finite"), std::string::npos);
  EXPECT_TRUE(parse_manifest(text, "m.json").finite);
  manifest.finite = false;
  const std::string diverged = serialize_manifest(manifest);
  EXPECT_THAT(diverged, HasSubstr("\"finite\": false"));
  EXPECT_FALSE(parse_manifest(diverged, "m.json").finite);
}

TEST(CheckpointManifest, RefusesEveryOtherBit) {
  const std::string text = serialize_manifest(example());
  for (std::size_t i = 0; i < text.size() * 8; ++i) {
    std::string damaged = text;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    EXPECT_THAT(refusal(damaged), StartsWith("m.json ")) << "bit " << i;
  }
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(refusal(text.substr(0, size)), StartsWith("m.json ")) << size << " bytes";
  }
  EXPECT_THAT(refusal(text + "\n"), HasSubstr("its text is another than the one that was written"));
}

TEST(CheckpointManifest, SaysWhatIsWrong) {
  const std::string text = serialize_manifest(example());
  std::string other = text;
  other.replace(other.find("\"step\": 60"), 10, "\"step\": 61");
  EXPECT_THAT(refusal(other), HasSubstr("m.json is damaged: its checksum is "));
  EXPECT_THAT(refusal("{}"), HasSubstr("it is not a manifest of a checkpoint"));
  EXPECT_THAT(refusal("["), HasSubstr("it is not JSON ("));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nested too deeply"));
}

// The checksum is valid, but the manifest was written by another version or another program.
TEST(CheckpointManifest, RefusesWhatItNeverWrites) {
  CheckpointManifest manifest = example();
  manifest.epoch = 0;
  EXPECT_THAT(refusal(serialize_manifest(manifest)),
              HasSubstr("its epoch is 0, expected at least 1"));
  const struct {
    std::int64_t CheckpointManifest::* number;
    std::int64_t value;
    const char* message;
  } cases[] = {
      {&CheckpointManifest::step, -1, "its step is -1, expected at least 0"},
      {&CheckpointManifest::sequence, 0, "its sequence is 0, expected at least 1"},
      {&CheckpointManifest::first_sequence, 0, "its first_sequence is 0, expected at least 1"},
      {&CheckpointManifest::parent, -1, "its parent is -1, expected at least 1"},
      {&CheckpointManifest::parent, 3, "its parent is 3, expected one below its sequence 3"}};
  for (const auto& [number, value, message] : cases) {
    manifest = example();
    manifest.*number = value;
    EXPECT_THAT(refusal(serialize_manifest(manifest)), HasSubstr(message));
  }
  for (const char* name : {"", "../model.safetensors", "/etc/passwd", ".hidden"}) {
    manifest = example();
    manifest.files[name] = {};
    EXPECT_THAT(refusal(serialize_manifest(manifest)), HasSubstr("is not the name of a file"))
        << name;
  }
}

// The checksum of a file is 16 digits of base 16, in lower case as they are written.
TEST(CheckpointManifest, RefusesChecksumsOfFilesThatAreNone) {
  const auto with_checksum = [](const std::string& digits) {
    std::string text = serialize_manifest(example());
    const std::string whole = "05e8aecd2ac6e2d9";
    text.replace(text.find(whole), whole.size(), digits);
    return with_right_checksum(text);
  };
  EXPECT_EQ(refusal(with_checksum("05e8aecd2ac6e2d9")), "accepted");
  EXPECT_EQ(refusal(with_checksum("ffffffffffffffff")), "accepted");
  for (const char* digits : {"", "5e8aecd2ac6e2d9", "005e8aecd2ac6e2d9", "05e8aecd2ac6e2dg",
                             "-5e8aecd2ac6e2d9", "0x5e8aecd2ac6e2d"}) {
    EXPECT_EQ(refusal(with_checksum(digits)),
              std::string("m.json is damaged: '") + digits + "' is not a checksum");
  }
  EXPECT_THAT(refusal(with_checksum("05E8AECD2AC6E2D9")),
              HasSubstr("its text is another than the one that was written"));
}

}  // namespace
}  // namespace lockstep::formats
