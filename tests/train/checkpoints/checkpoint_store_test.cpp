// Which checkpoints are kept, when old ones are removed, and what a resumed run finds.
#include <lockstep/train/checkpoints/checkpoint_store.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/checksum.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/checkpoints/stored_checkpoints.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CheckpointStoreTest, WritesWhatARunGoesOnFrom) {
  CheckpointStore written = store();
  const StepContent content(60);
  written.save(content.files(), {.epoch = 2, .step = 60, .metrics = {{"loss", 0.25}}});
  const FoundCheckpoint found = find_checkpoint(directory);
  EXPECT_EQ(found.folder, directory / "step-00000060");
  EXPECT_TRUE(holds_step(found.folder, 60));
  EXPECT_EQ(found.manifest.epoch, 2);
  EXPECT_EQ(found.manifest.step, 60);
  EXPECT_EQ(found.manifest.sequence, 1);
  EXPECT_EQ(found.manifest.metrics.at("loss"), 0.25);
  EXPECT_EQ(found.manifest.files.at(kModelFile).bytes, 3000U);
  EXPECT_THAT(found.damaged, IsEmpty());
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000060");
  EXPECT_FALSE(fs::exists(fs::symlink_status(directory / "best")));
}

TEST_F(CheckpointStoreTest, FindsNothingWhereThereIsNothing) {
  EXPECT_TRUE(find_checkpoint(directory).folder.empty());
  EXPECT_FALSE(store().resume());
}

struct Kept {
  const char* name;
  CheckpointOptions options;
  std::vector<std::string> expected;  // after steps 1 to 6
  const char* best;
};

// The losses of steps 1 to 6 decide which checkpoints are kept.
class CheckpointsKept : public CheckpointStoreTest, public ::testing::WithParamInterface<Kept> {};

INSTANTIATE_TEST_SUITE_P(
    Rules, CheckpointsKept,
    ::testing::Values(Kept{"Newest", {.keep_last = 1}, {"step-00000006"}, nullptr},
                      Kept{"TwoNewest", {}, {"step-00000005", "step-00000006"}, nullptr},
                      Kept{"SmallestLoss",
                           {.keep_last = 1, .save_top_k = 1},
                           {"step-00000003", "step-00000006"},
                           "step-00000003"},
                      Kept{"TwoSmallestLosses",
                           {.keep_last = 1, .save_top_k = 2},
                           {"step-00000002", "step-00000003", "step-00000006"},
                           "step-00000003"},
                      Kept{"LargestLoss",
                           {.keep_last = 1, .save_top_k = 1, .mode = MetricGoal::kMax},
                           {"step-00000001", "step-00000006"},
                           "step-00000001"},
                      Kept{"AnotherMetric",
                           {.keep_last = 1, .save_top_k = 1, .monitor = "accuracy"},
                           {"step-00000006"},
                           nullptr}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CheckpointsKept, AreTheNewestAndTheBest) {
  CheckpointStore written = store(GetParam().options);
  const double losses[] = {0.9, 0.3, 0.2, 0.3, std::nan(""), 0.4};
  for (std::int64_t step = 1; step <= 6; ++step) {
    save_step(written, step, {{"loss", losses[step - 1]}});
  }
  EXPECT_EQ(names_in(directory), GetParam().expected);
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000006");
  const fs::path best = directory / "best";
  if (GetParam().best == nullptr) {
    EXPECT_FALSE(fs::exists(fs::symlink_status(best)));
  } else {
    EXPECT_EQ(fs::read_symlink(best), GetParam().best);
  }
}

// The values of checkpoints that an earlier run wrote also count.
TEST_F(CheckpointStoreTest, RemembersTheBestAfterAResume) {
  const CheckpointOptions options = {.keep_last = 1, .save_top_k = 1};
  CheckpointStore first = store(options);
  save_step(first, 1, {{"loss", 0.1}});
  save_step(first, 2, {{"loss", 0.5}});
  CheckpointStore second = store(options);
  EXPECT_EQ(second.resume(), directory / "step-00000002");
  save_step(second, 3, {{"loss", 0.4}});
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
}

TEST_F(CheckpointStoreTest, ReplacesTheRunBeforeWhenANewOneBegins) {
  CheckpointStore first = store();
  for (const std::int64_t step : {100, 200}) save_step(first, step);
  CheckpointStore second = store();
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000100", "step-00000200"));
  save_step(second, 100, {}, 5000);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000100"));
  const FoundCheckpoint found = find_checkpoint(directory);
  EXPECT_TRUE(holds_step(found.folder, 100, 5000));
  EXPECT_EQ(found.manifest.sequence, 3);
  EXPECT_EQ(found.manifest.first_sequence, 3);
}

// A run resumed with a larger batch, for example, numbers its steps anew.
TEST_F(CheckpointStoreTest, KeepsABetterOneWithTheStepOfANewOne) {
  const CheckpointOptions options = {.keep_last = 1, .save_top_k = 1};
  CheckpointStore first = store(options);
  save_step(first, 1, {{"loss", 0.1}});
  save_step(first, 2, {{"loss", 0.5}});
  const auto resume_and_save = [&](const std::string& from, double loss, const std::string& saved) {
    CheckpointStore resumed = store(options);
    EXPECT_EQ(resumed.resume(), directory / from);
    const std::int64_t parent = read_manifest(directory / from).sequence;
    save_step(resumed, 1, {{"loss", loss}}, 5000);
    EXPECT_EQ(fs::read_symlink(directory / "latest"), saved);
    EXPECT_TRUE(holds_step(directory / saved, 1, 5000));
    EXPECT_EQ(read_manifest(directory / saved).parent, parent) << saved;
  };
  resume_and_save("step-00000002", 0.9, "step-00000001-v2");
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000001-v2"));
  EXPECT_TRUE(holds_step(directory / "step-00000001", 1));
  EXPECT_EQ(fs::read_symlink(directory / "best"), "step-00000001");
  resume_and_save("step-00000001-v2", 0.8, "step-00000001-v3");
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000001-v3"));
  resume_and_save("step-00000001-v3", 0.05, "step-00000001-v2");
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001-v2"));
  EXPECT_EQ(fs::read_symlink(directory / "best"), "step-00000001-v2");
}

// A diverged run cannot be continued from its newest checkpoints.
TEST_F(CheckpointStoreTest, KeepsTheNewestFiniteOne) {
  const auto save = [](CheckpointStore& run, std::int64_t step, bool finite) {
    const StepContent content(step);
    run.save(content.files(), {.epoch = 1,
                               .step = step,
                               .metrics = {{"loss", 10.0 - static_cast<double>(step)}},
                               .finite = finite});
  };
  CheckpointStore run = store({.keep_last = 2, .save_top_k = 1});
  const testing_support::CapturedLog log;
  for (const std::int64_t step : {1, 2, 3}) save(run, step, true);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000002", "step-00000003"));
  for (const std::int64_t step : {4, 5, 6, 7}) save(run, step, false);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000003", "step-00000006", "step-00000007"));
  EXPECT_EQ(fs::read_symlink(directory / "best"), "step-00000003");
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000007");
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(
                  HasSubstr("step-00000004 holds values that are not finite: the run "
                            "has diverged; "),
                  HasSubstr("`ln -sfn step-00000003 " + (directory / "latest").string() + "`"))));
  CheckpointStore resumed = store({.keep_last = 1});
  EXPECT_EQ(resumed.resume(), directory / "step-00000007");
  EXPECT_THAT(log.lines().back(), HasSubstr("the run had diverged when it was saved"));
  save(resumed, 8, false);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000003", "step-00000008"));
  save(resumed, 9, true);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000009"));
  EXPECT_THAT(log.lines(), ::testing::SizeIs(2)) << "one line each";
}

TEST_F(CheckpointStoreTest, HasNoFiniteOneToNameIfNoneIs) {
  CheckpointStore run = store();
  const StepContent content(1);
  const testing_support::CapturedLog log;
  run.save(content.files(), {.step = 1, .finite = false});
  EXPECT_THAT(log.lines(), ElementsAre(::testing::EndsWith("the run has diverged")));
}

// A run that has gone back reaches the number of one that it has left behind.
TEST_F(CheckpointStoreTest, ReplacesOneThatWasLeftBehind) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  replace_link(directory / "latest", "step-00000001");
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  save_step(second, 2, {}, 5000);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_TRUE(holds_step(directory / "step-00000002", 2, 5000));
}

// A step is saved twice if an evaluation comes at the end of an epoch, for instance.
TEST_F(CheckpointStoreTest, ReplacesItsOwnOfTheSameStep) {
  CheckpointStore run = store();
  for (const std::int64_t step : {1, 2}) save_step(run, step);
  save_step(run, 2, {}, 5000);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_TRUE(holds_step(directory / "step-00000002", 2, 5000));
}

// Two checkpoints have the step and the value. The one that was written last is found, whatever the
// order of their names.
TEST_F(CheckpointStoreTest, IsFoundByTheResultOfItsEvaluation) {
  const CheckpointOptions options = {.keep_last = 3, .save_top_k = 1};
  CheckpointStore first = store(options);
  save_step(first, 1, {{"loss", 0.5}, {"accuracy", 0.25}});
  save_step(first, 2, {{"loss", 0.5}});
  CheckpointStore second = store(options);
  EXPECT_TRUE(second.resume());
  save_step(second, 1, {{"loss", 0.5}});
  const fs::path older = directory / "step-00000001", newer = directory / "step-00000001-v2";
  EXPECT_EQ(find_evaluated(directory, 1, "loss", 0.5), newer);
  EXPECT_EQ(find_evaluated(directory, 1, "accuracy", 0.25), older);
  EXPECT_EQ(find_evaluated(directory, 2, "loss", 0.5), directory / "step-00000002");
  EXPECT_TRUE(find_evaluated(directory, 3, "loss", 0.5).empty()) << "another step";
  EXPECT_TRUE(find_evaluated(directory, 2, "loss", 0.25).empty()) << "another value";
  EXPECT_TRUE(find_evaluated(directory, 2, "accuracy", 0.5).empty()) << "another metric";
  EXPECT_TRUE(find_evaluated(scratch / "nowhere", 1, "loss", 0.5).empty());
  formats::CheckpointManifest manifest = read_manifest(older);
  manifest.sequence = 9;
  std::ofstream(older / kManifestFile) << formats::serialize_manifest(manifest);
  EXPECT_EQ(find_evaluated(directory, 1, "loss", 0.5), older);
  fs::remove(older / kManifestFile);
  EXPECT_EQ(find_evaluated(directory, 1, "loss", 0.5), newer) << "the other one is damaged";
}

TEST_F(CheckpointStoreTest, HaveNamesOfStepAndVersion) {
  EXPECT_EQ(checkpoint_name(60), "step-00000060");
  EXPECT_EQ(checkpoint_name(123456789, 12), "step-123456789-v12");
  for (const std::string& name : {checkpoint_name(60), checkpoint_name(123456789, 12)}) {
    EXPECT_TRUE(is_checkpoint_name(name)) << name;
  }
  for (const char* name : {"step-0000060", "step-00000060-", "step-00000060-v", "step-00000060-v2a",
                           "step-00000060v2", "step-0000a060-v2", "step--v2"}) {
    EXPECT_FALSE(is_checkpoint_name(name)) << name;
  }
}

// A larger batch reduces the steps per epoch, so that a newer checkpoint may have a smaller step
// number.
TEST_F(CheckpointStoreTest, TakesTheOneWrittenLastForTheNewest) {
  CheckpointStore first = store();
  save_step(first, 200);
  CheckpointStore second = store();
  EXPECT_TRUE(second.resume());
  save_step(second, 150);
  fs::remove(directory / "latest");
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000150");
}

TEST_F(CheckpointStoreTest, GoesBackToWhereItsUserTurnsLatest) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  replace_link(directory / "latest", "step-00000001");
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  save_step(second, 3);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000003");
  replace_link(directory / "latest", "step-00000009");
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000003") << "leads nowhere";
}

// Earlier versions recorded no parent. All checkpoints with a smaller sequence number then belong
// to the run.
TEST_F(CheckpointStoreTest, GoesOnFromOnesWithoutAParent) {
  CheckpointStore first = store({.keep_last = 3});
  for (const std::int64_t step : {1, 2, 3}) {
    save_step(first, step, {{"loss", static_cast<double>(step)}});
    const fs::path file = directory / checkpoint_name(step) / kManifestFile;
    formats::CheckpointManifest manifest = read_manifest(file.parent_path());
    EXPECT_EQ(manifest.parent, step - 1);
    EXPECT_EQ(testing_support::read_text(file).find("parent") == std::string::npos, step == 1);
    manifest.parent = 0;
    std::ofstream(file) << formats::serialize_manifest(manifest);
  }
  CheckpointStore second = store({.keep_last = 1, .save_top_k = 1});
  EXPECT_EQ(second.resume(), directory / "step-00000003");
  save_step(second, 4, {{"loss", 4}});
  EXPECT_EQ(read_manifest(directory / "step-00000004").parent, 3);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000004"));
}

TEST_F(CheckpointStoreTest, RefusesAParentThatIsNotBefore) {
  formats::CheckpointManifest manifest{.sequence = 3, .parent = 3};
  try {
    formats::parse_manifest(formats::serialize_manifest(manifest), "m.json");
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("its parent is 3, expected one below its sequence 3"));
  }
}

TEST_F(CheckpointStoreTest, RemovesWhatAKilledRunHasLeft) {
  CheckpointStore first = store();
  save_step(first, 1);
  const fs::path unfinished = directory / ".tmp-step-00000002";
  const fs::path removed = directory / ".tmp-removed-step-00000000";
  for (const fs::path& left : {unfinished, removed}) {
    fs::create_directory(left);
    std::ofstream(left / kModelFile) << "half a checkpoint";
  }
  const testing_support::CapturedLog log;
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000001");
  EXPECT_THAT(log.lines(), IsEmpty());
  store();
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_FALSE(fs::exists(removed));
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001"));
}

TEST_F(CheckpointStoreTest, RemovesADamagedOneOnceThereIsANewOne) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  fs::resize_file(directory / "step-00000002" / kModelFile, 10);
  const testing_support::CapturedLog log;
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  save_step(second, 3);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
}

// After the fallback to an older checkpoint, the run repeats the later steps.
TEST_F(CheckpointStoreTest, ReplacesADamagedOneOfTheSameStep) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  fs::resize_file(directory / "step-00000002" / kModelFile, 10);
  const testing_support::CapturedLog log;
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  save_step(second, 2);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
}

TEST_F(CheckpointStoreTest, KeepsALinkToTheWeights) {
  const CheckpointOptions options = {.link = scratch / "checkpoint.safetensors"};
  CheckpointStore first = store(options);
  save_step(first, 1);
  EXPECT_EQ(fs::read_symlink(options.link), "checkpoints/latest/model.safetensors");
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(1).model());
  save_step(first, 2);
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(2).model());
}

// Folders at the places of the links simulate a file system without symbolic links.
TEST_F(CheckpointStoreTest, GoesOnWithoutLinks) {
  fs::create_directories(directory / "latest/in the way");
  CheckpointStore first = store({.save_top_k = 1});
  const testing_support::CapturedLog log;
  for (const std::int64_t step : {1, 2}) save_step(first, step, {{"loss", 0.5}});
  EXPECT_THAT(log.lines(),
              ElementsAre(HasSubstr("; the run goes on without links to its checkpoints")));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
}

TEST_F(CheckpointStoreTest, GoesOnFromTheFileOfAnEarlierVersion) {
  const CheckpointOptions options = {.link = scratch / "checkpoint.safetensors"};
  scratch.write("checkpoint.safetensors", "an old checkpoint");
  CheckpointStore run = store(options);
  EXPECT_EQ(run.resume(), options.link);
  EXPECT_EQ(testing_support::read_text(options.link), "an old checkpoint")
      << "until there is another";
  save_step(run, 1);
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(1).model());
  EXPECT_EQ(store(options).resume(), directory / "step-00000001");
}

int priority_of_this_thread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

TEST_F(CheckpointStoreTest, GivesWayInOneThread) {
  const int before = priority_of_this_thread();
  int in_thread = 0;
  std::thread thread([&] {
    CheckpointStore::give_way();
    in_thread = priority_of_this_thread();
  });
  thread.join();
  EXPECT_EQ(in_thread, std::max(before, 10));
  EXPECT_EQ(priority_of_this_thread(), before);
}

// Several spellings of the link's target.
TEST_F(CheckpointStoreTest, GoesBackHoweverTheLinkIsWritten) {
  const std::string targets[] = {"step-00000001/", "./step-00000001",
                                 "../checkpoints/step-00000001",
                                 (directory / "step-00000001").string()};
  for (const std::string& target : targets) {
    fs::remove_all(directory);
    CheckpointStore first = store();
    for (const std::int64_t step : {1, 2}) save_step(first, step);
    replace_link(directory / "latest", target);
    const testing_support::CapturedLog log;
    CheckpointStore second = store();
    EXPECT_EQ(second.resume(), directory / "step-00000001") << target;
    EXPECT_THAT(log.lines(), IsEmpty());
    save_step(second, 3);
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003")) << target;
    EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000003");
  }
}

TEST_F(CheckpointStoreTest, SaysWhenTheLinkLeadsToNoCheckpoint) {
  CheckpointStore run = store();
  for (const std::int64_t step : {1, 2}) save_step(run, step);
  fs::create_directory(scratch / "step-00000001");
  for (const char* target : {"step-00000009", "../step-00000001"}) {
    replace_link(directory / "latest", target);
    const testing_support::CapturedLog log;
    EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(std::string(" leads to ") + target)));
  }
}

TEST_F(CheckpointStoreTest, HasNoLinkToABestOneThatIsGone) {
  CheckpointStore first = store({.save_top_k = 1});
  save_step(first, 1, {{"loss", 0.5}});
  EXPECT_EQ(fs::read_symlink(directory / "best"), "step-00000001");
  CheckpointStore second = store();
  save_step(second, 2);
  EXPECT_FALSE(fs::exists(fs::symlink_status(directory / "best")));
}

TEST_F(CheckpointStoreTest, LeavesFoldersOfOthersAlone) {
  scratch.write("checkpoints/step-20240101/notes", "not of a run");
  scratch.write("checkpoints/.tmp-upload/part", "not of a run");
  CheckpointStore run = store({.keep_last = 1});
  for (const std::int64_t step : {1, 2}) save_step(run, step);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000002", "step-20240101"));
  EXPECT_TRUE(fs::exists(directory / "step-20240101/notes"));
  EXPECT_TRUE(fs::exists(directory / ".tmp-upload/part"));
}

// An unreadable checkpoint may be complete and newer than all others.
TEST_F(CheckpointStoreTest, StopsAtAndKeepsWhatItCannotRead) {
  CheckpointStore first = store({.keep_last = 1});
  save_step(first, 1);
  formats::CheckpointManifest manifest = read_manifest(directory / "step-00000001");
  std::string newer = formats::serialize_manifest(manifest);
  newer.replace(newer.find("folder 1"), 8, "folder 2");
  const fs::path unreadable = directory / "step-00000002" / kManifestFile;
  struct Obstacle {
    const char* message;
    std::function<void()> make;
  };
  const Obstacle obstacles[] = {
      {"not a plain file", [&] { fs::create_directories(unreadable); }},
      {"Too many levels of symbolic links",
       [&] {
         fs::create_directories(unreadable.parent_path());
         fs::create_symlink(unreadable, unreadable);
       }},
      {"which this version does not know", [&] {
         const std::string body = newer.substr(0, newer.rfind(",\n  \"xxh3_64\"")) + "\n}\n";
         const std::string sum =
             formats::checksum_digits(formats::checksum(testing_support::as_bytes(body)));
         fs::create_directories(unreadable.parent_path());
         std::ofstream(unreadable)
             << body.substr(0, body.size() - 3) << ",\n  \"xxh3_64\": \"" << sum << "\"\n}\n";
       }}};
  for (const Obstacle& obstacle : obstacles) {
    fs::remove_all(unreadable.parent_path());
    obstacle.make();
    replace_link(directory / "latest", unreadable.parent_path().filename());
    try {
      find_checkpoint(directory);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(obstacle.message), HasSubstr("may be whole")));
    }
    save_step(first, 3);
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000002", "step-00000003"));
    save_step(first, 2);
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000002", "step-00000002-v2"));
    EXPECT_FALSE(holds_step(directory / "step-00000002", 2));
  }
}

// While the newest checkpoint is searched for, a run replaces the only one. Here this happens as
// soon as a warning reports that the newest one is damaged.
TEST_F(CheckpointStoreTest, IsLookedForAgainWhenARunHasReplacedIt) {
  CheckpointStore run = store();
  for (const std::int64_t step : {1, 2}) save_step(run, step);
  fs::resize_file(directory / "step-00000002" / kModelFile, 10);
  int warnings = 0;
  set_log_sink([&](LogLevel, const std::string&) {
    if (++warnings > 1) return;
    CheckpointStore other({.directory = directory, .keep_last = 1});
    save_step(other, 3);
  });
  const FoundCheckpoint found = find_checkpoint(directory);
  set_log_sink(nullptr);
  EXPECT_EQ(found.folder, directory / "step-00000003");
  EXPECT_THAT(found.damaged, IsEmpty());
  EXPECT_EQ(warnings, 1);
}

TEST_F(CheckpointStoreTest, SaysThatItsFolderCannotBeMade) {
  scratch.write("file", "kept");
  const CheckpointStore run({.directory = scratch / "file/checkpoints"});
  EXPECT_EQ(testing_support::message_of<CheckpointError>([&] { run.prepare(); }),
            "cannot make the folder of the checkpoints " + (scratch / "file/checkpoints").string() +
                ": Not a directory");
  EXPECT_EQ(testing_support::read_text(scratch / "file"), "kept");
  EXPECT_THROW(checkpoint_folders(scratch / "file"), DataError);
}

// A manifest without one of the two files is that of no checkpoint, even if its checksum is right.
TEST_F(CheckpointStoreTest, NeedsBothFilesInItsManifest) {
  CheckpointStore run = store();
  save_step(run, 1);
  const fs::path folder = directory / "step-00000001";
  const formats::CheckpointManifest whole = read_manifest(folder);
  for (const char* name : {kModelFile, kTrainingFile}) {
    formats::CheckpointManifest manifest = whole;
    manifest.files.erase(name);
    std::ofstream(folder / kManifestFile) << formats::serialize_manifest(manifest);
    try {
      verify_checkpoint(folder);
      ADD_FAILURE() << "accepted without " << name;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.what(),
                str((folder / kManifestFile).string(), " does not list ", std::string(name)));
    }
  }
}

TEST_F(CheckpointStoreTest, IsKnownByItsNameOrItsManifest) {
  CheckpointStore run = store();
  save_step(run, 1);
  EXPECT_TRUE(is_checkpoint(directory / "step-00000001"));
  EXPECT_TRUE(is_checkpoint(directory / "latest")) << "a link to one";
  fs::rename(directory / "step-00000001", directory / "renamed");
  EXPECT_TRUE(is_checkpoint(directory / "renamed"));
  fs::remove(directory / "renamed" / kManifestFile);
  EXPECT_FALSE(is_checkpoint(directory / "renamed"));
  EXPECT_FALSE(is_checkpoint(directory));
}

}  // namespace
}  // namespace lockstep::train
