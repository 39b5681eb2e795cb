#include <lockstep/simulate/step_profile.h>

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::simulate {
namespace {

using testing_support::message_of;
using testing_support::TemporaryDirectory;

StepProfile profile_of_two_buckets() {
  return {.name = "net",
          .strategy = "ddp",
          .backend = "shm",
          .ranks = 2,
          .batch_per_rank = 32,
          .processors = 8,
          .threads_per_rank = 4,
          .steps = 10,
          .data_seconds = 0.5,
          .forward_seconds = 1.5,
          .backward_seconds = 2.5,
          .optimizer_seconds = 3.5,
          .other_seconds = 4.5,
          .straggler_seconds = 5.5,
          .buckets = {{.bytes = 4096, .ready_seconds = 1.25, .parameters = 3},
                      {.bytes = 8, .ready_seconds = 2.5, .parameters = 1}},
          .step_seconds = 6.5,
          .step_low_seconds = 7.5,
          .step_high_seconds = 8.5,
          .exposed_seconds = 9.5};
}

// People read and edit this file.
TEST(StepProfile, IsWrittenAsIndentedText) {
  EXPECT_EQ(to_json(profile_of_two_buckets()), R"({
  "name": "net",
  "strategy": "ddp",
  "backend": "shm",
  "ranks": 2,
  "batch_per_rank": 32,
  "processors": 8,
  "threads_per_rank": 4,
  "steps": 10,
  "data_seconds": 0.5,
  "forward_seconds": 1.5,
  "backward_seconds": 2.5,
  "optimizer_seconds": 3.5,
  "other_seconds": 4.5,
  "straggler_seconds": 5.5,
  "step_seconds": 6.5,
  "step_low_seconds": 7.5,
  "step_high_seconds": 8.5,
  "exposed_seconds": 9.5,
  "buckets": [
    {
      "bytes": 4096.0,
      "ready_seconds": 1.25,
      "parameters": 3
    },
    {
      "bytes": 8.0,
      "ready_seconds": 2.5,
      "parameters": 1
    }
  ]
}
)");
}

TEST(StepProfile, AddsUpItsBucketsAndItsComputing) {
  const StepProfile profile = profile_of_two_buckets();
  EXPECT_DOUBLE_EQ(profile.bytes(), 4104);
  EXPECT_DOUBLE_EQ(profile.compute_seconds(), 12.5) << "without the straggler";
  EXPECT_DOUBLE_EQ(StepProfile().bytes(), 0);
  EXPECT_DOUBLE_EQ(StepProfile().compute_seconds(), 0);
}

TEST(StepProfile, HasDefaultsForWhatAFileLeavesOut) {
  const TemporaryDirectory folder;
  folder.write("profile.json",
               R"({"backward_seconds": 2, "buckets": [{"bytes": 4, "ready_seconds": 2}]})");
  const StepProfile profile = read_step_profile(folder / "profile.json");
  EXPECT_EQ(profile.name, "");
  EXPECT_EQ(profile.strategy, "ddp");
  EXPECT_EQ(profile.backend, "");
  EXPECT_EQ(profile.ranks, 1);
  EXPECT_EQ(profile.batch_per_rank, 0);
  EXPECT_EQ(profile.processors, 0);
  EXPECT_EQ(profile.threads_per_rank, 1);
  EXPECT_EQ(profile.steps, 0);
  EXPECT_DOUBLE_EQ(profile.compute_seconds(), 2);
  EXPECT_DOUBLE_EQ(profile.straggler_seconds, 0);
  EXPECT_DOUBLE_EQ(profile.step_seconds, 0);
  EXPECT_DOUBLE_EQ(profile.step_low_seconds, 0);
  EXPECT_DOUBLE_EQ(profile.step_high_seconds, 0);
  EXPECT_DOUBLE_EQ(profile.exposed_seconds, 0);
  ASSERT_EQ(profile.buckets.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.buckets[0].bytes, 4);
  EXPECT_DOUBLE_EQ(profile.buckets[0].ready_seconds, 2);
  EXPECT_EQ(profile.buckets[0].parameters, 1);
}

TEST(StepProfile, HasNoNegativeTime) {
  const std::pair<const char*, double StepProfile::*> times[] = {
      {"data_seconds", &StepProfile::data_seconds},
      {"forward_seconds", &StepProfile::forward_seconds},
      {"backward_seconds", &StepProfile::backward_seconds},
      {"optimizer_seconds", &StepProfile::optimizer_seconds},
      {"other_seconds", &StepProfile::other_seconds},
      {"straggler_seconds", &StepProfile::straggler_seconds},
      {"step_seconds", &StepProfile::step_seconds},
      {"step_low_seconds", &StepProfile::step_low_seconds},
      {"step_high_seconds", &StepProfile::step_high_seconds},
      {"exposed_seconds", &StepProfile::exposed_seconds}};
  for (const auto& [name, member] : times) {
    StepProfile profile = profile_of_two_buckets();
    profile.*member = -0.25;
    EXPECT_EQ(message_of<ConfigError>([&] { validate(profile, "it"); }),
              str("it: ", name, " must be at least 0, got -0.25"));
    if (member == &StepProfile::backward_seconds) continue;  // its buckets need it
    profile.*member = 0;
    EXPECT_NO_THROW(validate(profile, "it")) << name;
  }
}

// Each part alone makes a step that takes time.
TEST(StepProfile, TakesTheTimeOfAnyPart) {
  StepProfile profile{.strategy = "ddp", .buckets = {{.bytes = 4}}, .step_seconds = 1};
  profile.straggler_seconds = 1;
  EXPECT_EQ(message_of<ConfigError>([&] { validate(profile, "it"); }),
            "it: a step of this profile takes no time");
  for (double StepProfile::* const member :
       {&StepProfile::data_seconds, &StepProfile::forward_seconds, &StepProfile::backward_seconds,
        &StepProfile::optimizer_seconds, &StepProfile::other_seconds}) {
    StepProfile timed = profile;
    timed.*member = 1e-9;
    EXPECT_NO_THROW(validate(timed, "it"));
  }
}

TEST(StepProfile, NamesTheFileThatIsNone) {
  const TemporaryDirectory folder;
  const std::string file = (folder / "profile.json").string();
  const auto refusal = [&](const std::string& text) {
    folder.write("profile.json", text);
    return message_of<Error>([&] { read_step_profile(file); });
  };
  EXPECT_EQ(refusal("{"), file + " is not JSON: line 1, column 2");
  EXPECT_EQ(refusal("{}"), file + " is not the profile of a step: 'buckets' is missing");
  EXPECT_EQ(refusal("[1]"), file + " is not the profile of a step: expected object, got array");
  EXPECT_EQ(refusal(R"({"ranks": "two", "buckets": []})"),
            file + " is not the profile of a step: expected number, got string");
  EXPECT_EQ(refusal(R"({"buckets": [{"bytes": 4}]})"),
            file + " is not the profile of a step: 'ready_seconds' is missing");
  EXPECT_EQ(refusal(R"({"forward_seconds": 1, "buckets": []})"),
            file + ": there is no bucket of gradients");
  EXPECT_EQ(refusal(R"({"ranks": 0, "buckets": []})"), file + ": ranks must be at least 1, got 0");
}

}  // namespace
}  // namespace lockstep::simulate
