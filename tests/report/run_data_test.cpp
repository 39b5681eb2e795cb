// What the report reads from the record of a run.
#include <lockstep/report/html/run_data.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/file_lock.h>
#include <lockstep/report/html/comparison.h>
#include <tests/report/sample_record.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

// The lock on the folder tells whether a run still runs that has not recorded its end.
TEST(RunData, SaysThatARunIsRunningOnlyWhileItsFolderIsLocked) {
  const TemporaryDirectory folder;
  const auto state = [&] { return html::read_run_data(folder / "run").state; };
  write_sample_record(folder, "run", {.state = "running"});
  EXPECT_EQ(state(), "running") << "not known: without a lock file";
  {
    const FileLock lock(folder / "run/.lockstep-lock", "the run");
    EXPECT_EQ(state(), "running");
  }
  EXPECT_EQ(state(), "interrupted");
  EXPECT_EQ(html::read_run_data(folder / "run").error,
            "the process was killed before it could record the end of the run");
  EXPECT_EQ(html::read_run_data(folder / "run/run.json").state, "interrupted");
  for (const char* ended : {"complete", "failed"}) {
    write_sample_record(folder, "run", {.state = ended});
    EXPECT_EQ(state(), ended);
  }
}

// The lock of a run in the current folder says nothing about the run of a record alone.
TEST(RunData, DoesNotJudgeARecordByTheCurrentFolder) {
  const TemporaryDirectory folder;
  folder.write("here/.lockstep-lock", "");
  write_sample_record(folder, "run", {.state = "running"});
  std::filesystem::rename(folder / "run/run.json", folder / "record.json");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "here");
  EXPECT_EQ(html::read_run_data(folder / "record.json").state, "running");
  std::filesystem::current_path(before);
}

TEST(RunData, TakesRecordsWithoutWhatMayBeMissing) {
  const TemporaryDirectory folder;
  nlohmann::json record = nlohmann::json::parse(sample_record({.epochs = 0}));
  const auto parsed = [&] {
    folder.write("run/run.json", record.dump());
    return html::read_run_data(folder / "run");
  };
  EXPECT_EQ(parsed().work, "mnist, loader native, 1 thread a rank, cpu, precision 32");
  EXPECT_EQ(parsed().started, "2026-11-25T13:00:00Z");
  EXPECT_EQ(parsed().seconds, 9.5);
  EXPECT_EQ(parsed().peak_bytes, 162e6);
  for (const char* name : {"threads_per_rank", "device", "precision", "state", "started", "command",
                           "global_batch", "seconds_total", "peak_rss_bytes"}) {
    record.erase(name);
  }
  record["epochs"] = nlohmann::json::parse(
      R"([{"epoch": 1, "steps": 0, "seconds": 0, "processor_seconds": 3, "gpu": 1, "phases": {},
           "train_loss": null, "metrics": 5}])");
  const html::RunData run = parsed();
  EXPECT_EQ(run.work, "mnist, loader native, 1 thread a rank");
  EXPECT_EQ(run.subject, "mnist, ddp, loader native");
  EXPECT_EQ(run.state, "complete");
  EXPECT_EQ(run.error + run.started + run.command, "");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.global_batch, 0);
  EXPECT_EQ(run.seconds, 0);
  EXPECT_EQ(run.peak_bytes, 0);
  EXPECT_FALSE(run.facts || run.trace);
  ASSERT_EQ(run.epochs.size(), 1U);
  EXPECT_FALSE(run.epochs[0].train_loss || run.epochs[0].gpu);
  EXPECT_EQ(run.epochs[0].images_per_second, 0);
  EXPECT_EQ(run.epochs[0].processors, 0);
  EXPECT_TRUE(run.epochs[0].metrics.empty());
  EXPECT_THAT(run.epochs[0].phases, ::testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(html::best_rate(run), 0);
  record["threads_per_rank"] = 3;
  record["accumulate_grad_batches"] = 2;
  record["recipe_options"] = {{"model", "resnet50"}};
  EXPECT_EQ(parsed().work,
            "mnist, loader native, 3 threads a rank, model resnet50, 2 batches a step");
  record["accumulate_grad_batches"] = 1;
  EXPECT_EQ(parsed().work, "mnist, loader native, 3 threads a rank, model resnet50");
}

// What the page shows elsewhere is no setting; inside a setting, the same names are.
TEST(RunData, ListsTheSettingsOfARun) {
  const TemporaryDirectory folder;
  write_sample_record(
      folder, "run",
      {.error = "none",
       .settings = R"settings(, "extra": {"state": "kept", "missing": null, "deep": {"n": 2}},
                                      "nothing": null, "profile": {"a": 1}, "test": 2, "validation": 3,
                                      "best": 4, "commands": [],
                                      "provenance": {"augmentation": "Pad(4, fill 0)"})settings",
       .epochs = 0});
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : html::read_run_data(folder / "run").configuration) {
    EXPECT_TRUE(settings.emplace(name, value).second) << name;
  }
  const std::map<std::string, std::string> expected = {
      {"versions: libtorch", "2.13.0"},
      {"recipe", "mnist"},
      {"strategy", "ddp"},
      {"backend", "shm"},
      {"loader", "native"},
      {"device", "cpu"},
      {"precision", "32"},
      {"world_size", "2"},
      {"threads_per_rank", "1"},
      {"global_batch", "128"},
      {"extra: state", "kept"},
      {"extra: deep: n", "2"},
      {"provenance: augmentation", "Pad(4, fill 0)"},
      {"usable_processors", "8"},
      {"seconds_total", "9.5"},
      {"peak_rss_bytes", "162000000"}};
  EXPECT_EQ(settings, expected);
}

// What lies beside a record alone may be another run's.
TEST(RunData, TakesNothingFromBesideARecordAlone) {
  const TemporaryDirectory folder;
  folder.write("alone.json", sample_record({}));
  folder.write("trace.json", "no trace");
  const html::RunData run = html::read_run_data(folder / "alone.json");
  EXPECT_EQ(run.name, "alone");
  EXPECT_TRUE(run.facts.has_value());
  EXPECT_FALSE(run.trace.has_value());
  EXPECT_TRUE(run.pictures.empty());
}

TEST(RunData, SaysWhyARunCannotBeRead) {
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& name) {
    return message_of<DataError>([&] { html::read_run_data(folder / name); });
  };
  EXPECT_EQ(refusal("none"), (folder / "none").string() +
                                 " does not exist: give the folder of a `lockstep train --out` "
                                 "run, or a record of `lockstep train --json`");
  const std::string file = (folder / "run/run.json").string();
  nlohmann::json record = nlohmann::json::parse(sample_record({}));
  record.erase("epochs");
  folder.write("run/run.json", record.dump());
  EXPECT_EQ(refusal("run"), file + " is not what Lockstep writes: 'epochs' is missing");
  folder.write("run/run.json", "{");
  EXPECT_EQ(refusal("run"), file + " is not JSON: line 1, column 2");
}

TEST(RunData, IsInFilesThatHaveEpochs) {
  const TemporaryDirectory folder;
  const std::pair<const char*, bool> cases[] = {{R"({"epochs": []})", true}, {"{}", false},
                                                {R"(["epochs"])", false},    {"[]", false},
                                                {R"({"epochs": )", false},   {"", false}};
  for (const auto& [text, is_record] : cases) {
    folder.write("file.json", text);
    EXPECT_EQ(html::holds_run_record(folder / "file.json"), is_record) << text;
  }
  EXPECT_FALSE(html::holds_run_record(folder.path()));
  EXPECT_FALSE(html::holds_run_record(folder / "none.json"));
}

TEST(RunData, HasEveryCommandOfAResumedRun) {
  const TemporaryDirectory folder;
  const auto read = [&](const std::string& commands) {
    write_sample_record(folder, "run", {.settings = commands});
    return html::read_run_data(folder / "run");
  };
  EXPECT_TRUE(read("").commands.empty());
  const html::RunData run = read(R"(, "commands": [
      {"command": "train <a>", "started": "Monday", "first_epoch": 1, "last_epoch": 2},
      {"command": "train b", "started": "Tuesday", "first_epoch": 3, "last_epoch": null},
      {"command": "train http://ada:t0ken@host", "started": "Friday", "first_epoch": 3,
       "last_epoch": 3}])");
  ASSERT_EQ(run.commands.size(), 3U);
  EXPECT_EQ(run.commands[0].last_epoch, 2);
  EXPECT_FALSE(run.commands[1].last_epoch);
  EXPECT_THAT(html::overview({run}),
              ::testing::HasSubstr("started Monday (epochs 1 to 2)<br/><code>train &lt;a&gt;</code>"
                                   "<br/>resumed Tuesday (no whole epoch)<br/><code>train b</code>"
                                   "<br/>resumed Friday (epoch 3)<br/><code>train "
                                   "http://***@host</code></p>"));
}

TEST(RunData, SaysAfterWhichStepARunWentOn) {
  const TemporaryDirectory folder;
  write_sample_record(folder, "run", {.settings = R"(, "commands": [
      {"command": "a", "started": "Monday", "first_epoch": 1, "first_step": 0, "last_epoch": 1},
      {"command": "b", "started": "Tuesday", "first_epoch": 2, "first_step": 4, "last_epoch": null},
      {"command": "c", "started": "Friday", "first_epoch": 2, "first_step": 24, "last_epoch": 2}])"});
  const std::string text = html::overview({html::read_run_data(folder / "run")});
  EXPECT_THAT(text, ::testing::HasSubstr("started Monday (epoch 1)<br/>"));
  EXPECT_THAT(
      text, ::testing::HasSubstr("resumed Tuesday (no whole epoch, after step 4 of epoch 2)<br/>"));
  EXPECT_THAT(text, ::testing::HasSubstr("resumed Friday (epoch 2, after step 24 of epoch 2)"));
}

TEST(RunData, MarksAnEpochOfWhichACommandMadeOnlyAPart) {
  const TemporaryDirectory folder;
  std::string record = sample_record({.epochs = 2});
  const std::string steps = R"("steps": 10,)";
  record.replace(record.rfind(steps), steps.size(), steps + R"( "steps_per_epoch": 32,)");
  folder.write("run/run.json", record);
  const std::string text = html::speed({html::read_run_data(folder / "run")});
  EXPECT_THAT(text, ::testing::HasSubstr("<td class=\"t\">epoch 1</td>"));
  EXPECT_THAT(text, ::testing::HasSubstr("<td class=\"t\">epoch 2 (10 of 32 steps)</td>"));
}

// The second command made the rest of epoch 2; the third began it again, but completed nothing.
TEST(RunData, KnowsWhetherARunEndedWithinAnEpoch) {
  const TemporaryDirectory folder;
  const std::string steps = R"("steps": 10,)";
  const auto read = [&](const std::string& settings) {
    std::string record = sample_record({.settings = settings, .epochs = 2});
    record.replace(record.rfind(steps), steps.size(), steps + R"( "steps_per_epoch": 32,)");
    folder.write("run/run.json", record);
    return html::read_run_data(folder / "run").epochs;
  };
  const auto ended = read("");
  EXPECT_TRUE(ended[1].is_partial());
  EXPECT_TRUE(ended[1].ends_within());
  EXPECT_FALSE(ended[0].is_partial());
  EXPECT_FALSE(ended[0].ends_within());
  const auto resumed = read(R"(, "commands": [
      {"command": "a", "started": "Monday", "first_epoch": 1, "first_step": 0, "last_epoch": 1},
      {"command": "b", "started": "Tuesday", "first_epoch": 2, "first_step": 22, "last_epoch": 2},
      {"command": "c", "started": "Friday", "first_epoch": 2, "first_step": 4,
       "last_epoch": null}])");
  EXPECT_TRUE(resumed[1].is_partial());
  EXPECT_EQ(resumed[1].steps_before, 22);
  EXPECT_FALSE(resumed[1].ends_within());
  // A record of `train --json` does not have the step after which its run was resumed.
  std::string record = sample_record({.settings = R"(, "resumed_from": "step-4")", .epochs = 1});
  record.replace(record.rfind(steps), steps.size(), steps + R"( "steps_per_epoch": 32,)");
  folder.write("alone.json", record);
  const html::RunData alone = html::read_run_data(folder / "alone.json");
  EXPECT_TRUE(alone.epochs[0].is_partial());
  EXPECT_FALSE(alone.epochs[0].ends_within());
}

// A record of an earlier version has no best value, and one without checkpoints no weights of it.
TEST(RunData, HasTheBestValue) {
  const TemporaryDirectory folder;
  const auto read = [&](const std::string& best) {
    write_sample_record(folder, "run", {.settings = best});
    return html::read_run_data(folder / "run");
  };
  EXPECT_FALSE(read("").best);
  EXPECT_FALSE(read(R"(, "best": null)").best);
  const html::RunData kept = read(R"(, "best": {"metric": "accuracy", "value": 0.75, "epoch": 2,
                                     "weights": "run/<best>"})");
  ASSERT_TRUE(kept.best);
  EXPECT_EQ(kept.best->name, "accuracy");
  EXPECT_EQ(kept.best->value, 0.75);
  EXPECT_EQ(kept.best->epoch, 2);
  EXPECT_EQ(kept.best->weights, "run/<best>");
  const std::string tiles = html::overview({kept});
  EXPECT_THAT(tiles, ::testing::HasSubstr("<span>best value</span><b>validation accuracy 0.75 in "
                                          "epoch 2</b>"));
  EXPECT_THAT(tiles, ::testing::HasSubstr("<span>weights of the best value</span><b>run/&lt;best"));
  const html::RunData lost =
      read(R"(, "best": {"metric": "train_loss", "value": 0.5, "epoch": 1, "weights": null})");
  ASSERT_TRUE(lost.best);
  const std::string without = html::overview({lost});
  EXPECT_THAT(without, ::testing::HasSubstr("<b>training loss 0.5 in epoch 1</b>"));
  EXPECT_THAT(without, ::testing::Not(::testing::HasSubstr("weights of the best value")));
}

}  // namespace
}  // namespace lockstep::testing_support
