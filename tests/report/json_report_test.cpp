#include <lockstep/report/json_report.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <tests/report/sample_run.h>
#include <tests/support/messages.h>

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;
using testing_support::sample_info;
using testing_support::sample_report;

// Provides a folder that is removed after the test.
class JsonReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-json-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ToJson, WritesTheDocumentedForm) {
  EXPECT_EQ(to_json(sample_report(1)), R"({
  "recipe": "mnist",
  "strategy": "ddp",
  "backend": "shm",
  "loader": "native",
  "precision": "32",
  "slow_precisions": [],
  "device": "cpu",
  "fused_kernels": true,
  "world_size": 2,
  "threads_per_rank": 1,
  "global_batch": 128,
  "steps_per_epoch": 469,
  "learning_rate": 0.0,
  "setup_seconds": {
    "group": 0.0,
    "loader": 0.0,
    "model": 0.0,
    "synchronization": 0.0
  },
  "already_complete": false,
  "epochs": [
    {
      "epoch": 1,
      "steps": 469,
      "seconds": 2.0,
      "train_loss": 0.25,
      "images_per_second": 30000.0,
      "phases": {
        "data": 0.1,
        "forward": 0.5,
        "backward": 1.0,
        "communication": 0.2,
        "optimizer": 0.1,
        "stage_waits": 0.0
      },
      "first_batch_seconds": 0.0,
      "processor_seconds": 0.0,
      "processor_wait_seconds": null,
      "busy_processors": null,
      "gpu": null,
      "metrics": {
        "loss": 0.0512,
        "accuracy": 0.9842
      },
      "rss_bytes": 250000000
    }
  ],
  "validation": {
    "loss": 0.0512,
    "accuracy": 0.9842
  },
  "best": null,
  "test": {
    "loss": 0.0512,
    "accuracy": 0.9842
  },
  "skipped_images": 3,
  "seconds_to_first_step": 0.391,
  "seconds_total": 24.06,
  "peak_rss_bytes": 312400000
}
)");
}

TEST(ToJson, SaysNullWhereThereIsNoNumber) {
  RunReport report = sample_report(1);
  report.test.reset();
  report.epochs[0].train_loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json["validation"].is_null());
  EXPECT_TRUE(json["best"].is_null());
  EXPECT_TRUE(json["epochs"][0]["train_loss"].is_null());
  EXPECT_EQ(nlohmann::json::parse(to_json(sample_report(0)))["epochs"], nlohmann::json::array());
}

TEST(ToJson, HasWhateverTheTaskGives) {
  RunReport report = sample_report(1);
  report.test = Evaluation{
      .has_loss = false,
      .values = {{.name = "psnr", .value = 31.25}},
      .tables = {{.name = "confusion", .labels = {"cat", "dog"}, .rows = {{3, 1}, {0, 2}}}},
      .samples = 6};
  report.epochs[0].test.reset();
  report.stop_reason = "loss is nan";
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["validation"], nlohmann::json::parse(R"({"psnr": 31.25, "confusion": {
      "labels": ["cat", "dog"], "rows": [[3.0, 1.0], [0.0, 2.0]]}})"));
  EXPECT_EQ(json["test"], json["validation"]) << "its earlier name";
  EXPECT_TRUE(json["epochs"][0]["metrics"].is_null());
  EXPECT_EQ(json["stop_reason"], "loss is nan");
  EXPECT_FALSE(nlohmann::json::parse(to_json(sample_report(1))).contains("stop_reason"));
}

TEST(ToJson, TakesPathsAndClassesThatAreNoText) {
  RunReport report = sample_report(1);
  report.info.resumed_from = "/run\xE9/checkpoint";
  report.info.recipe_options = {{"weights", "/caf\xE8"}};
  report.test = Evaluation{
      .tables = {
          {.name = "confusion", .labels = {"caf\xE9", "caf\xE8"}, .rows = {{3, 1}, {0, 2}}}}};
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["resumed_from"], "/run\\xe9/checkpoint");
  EXPECT_EQ(json["recipe_options"]["weights"], "/caf\\xe8");
  EXPECT_EQ(json["validation"]["confusion"]["labels"], nlohmann::json({"caf\\xe9", "caf\\xe8"}));
}

// Each figure has a value of its own, so that none can take the place of another.
TEST(ToJson, HasEachFigureInItsPlace) {
  RunReport report = sample_report(1);
  report.already_complete = true;
  report.info.learning_rate = 0.5;
  report.info.resumed_from = "run/checkpoints/step-00000008";
  report.best = BestEvaluation{.name = "psnr",
                               .value = 33.5,
                               .epoch = 7,
                               .weights = "run/checkpoints/step-00000070/model.safetensors"};
  report.info.setup = {.group = 0.125, .loader = 0.25, .model = 0.375, .synchronization = 0.75};
  report.profile = {{.name = "forward", .calls = 6, .seconds = 1.5},
                    {.name = "other", .calls = 1, .seconds = 2.5}};
  EpochReport& epoch = report.epochs[0];
  epoch.phases.stage_waits = 0.0625;
  epoch.first_batch_seconds = 0.03125;
  epoch.processor_seconds = 11;
  epoch.processor_wait_seconds = 12;
  epoch.busy_processors = 0.8125;
  epoch.gpu = GpuUsage{.utilisation = 0.5,
                       .memory_utilisation = 0.25,
                       .memory_bytes = 8'000'000,
                       .power_watts = 310};
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["already_complete"], true);
  EXPECT_EQ(json["learning_rate"], 0.5);
  EXPECT_EQ(json["resumed_from"], "run/checkpoints/step-00000008");
  EXPECT_EQ(json["best"], nlohmann::json::parse(R"({"metric": "psnr", "value": 33.5, "epoch": 7,
      "weights": "run/checkpoints/step-00000070/model.safetensors"})"));
  EXPECT_EQ(json["setup_seconds"], nlohmann::json::parse(R"({"group": 0.125, "loader": 0.25,
      "model": 0.375, "synchronization": 0.75})"));
  EXPECT_EQ(json["profile"], nlohmann::json::parse(R"([
      {"action": "forward", "calls": 6, "seconds": 1.5},
      {"action": "other", "calls": 1, "seconds": 2.5}])"));
  const auto& first = json["epochs"][0];
  EXPECT_EQ(first["phases"]["stage_waits"], 0.0625);
  EXPECT_EQ(first["first_batch_seconds"], 0.03125);
  EXPECT_EQ(first["processor_seconds"], 11.0);
  EXPECT_EQ(first["processor_wait_seconds"], 12.0);
  EXPECT_EQ(first["busy_processors"], 0.8125);
  EXPECT_EQ(first["gpu"], nlohmann::json::parse(R"({"utilisation": 0.5,
      "memory_utilisation": 0.25, "memory_bytes": 8000000, "power_watts": 310.0})"));
}

TEST(ToJson, SaysWhatTheRunIsMadeFrom) {
  RunReport report = sample_report(1);
  for (const char* name : {"weights", "provenance"}) {
    EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains(name)) << name;
  }
  report.info.weights = "resnet18.pth";
  report.info.provenance = {{"augmentation", "Pad(4, fill 0)"}, {"split", "at random"}};
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["weights"], "resnet18.pth");
  EXPECT_EQ(json["provenance"], nlohmann::json::parse(R"json({"augmentation": "Pad(4, fill 0)",
                                                              "split": "at random"})json"));
}

TEST(ToJson, SaysHowManyStepsAnEpochHasOfWhichItMadeAPart) {
  RunReport report = sample_report(2);
  for (EpochReport& epoch : report.epochs) epoch.steps_per_epoch = 469;
  report.epochs[1].steps = 69;
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_FALSE(json["epochs"][0].contains("steps_per_epoch"));
  EXPECT_EQ(json["epochs"][1]["steps"], 69);
  EXPECT_EQ(json["epochs"][1]["steps_per_epoch"], 469);
}

TEST(ToJson, SaysHowManyBatchesAStepHas) {
  RunReport report = sample_report(1);
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("accumulate_grad_batches"));
  report.info.accumulate_grad_batches = 3;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["accumulate_grad_batches"], 3);
}

TEST(ToJson, SaysWhatReplicasThereAre) {
  RunReport report = sample_report(1);
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("devices"));
  report.info.devices = 2;
  report.info.dp_loss = "on-each";
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["dp_loss"], "on-each");
  EXPECT_FALSE(json.contains("device_weights"));
  report.info.device_weights = {2, 1};
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["device_weights"],
            nlohmann::json::array({2.0, 1.0}));
}

TEST(ToJson, SaysWhatPipelineThereIs) {
  RunReport report = sample_report(1);
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("stages"));
  report.info.stages = 2;
  report.info.cuts = {"layer2"};
  report.info.whole_backward = {0, 1};
  report.info.micro_batches = 8;
  report.info.schedule = "1f1b";
  report.info.recompute = true;
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["stages"], 2);
  EXPECT_FALSE(json.contains("workers")) << "not known";
  report.info.workers = 4;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["workers"], 4);
  EXPECT_EQ(json["cuts"], nlohmann::json::array({"layer2"}));
  EXPECT_EQ(json["whole_backward"], nlohmann::json::array({0, 1}));
  EXPECT_EQ(json["micro_batches"], 8);
  EXPECT_EQ(json["schedule"], "1f1b");
  EXPECT_EQ(json["recompute"], true);
}

TEST_F(JsonReportTest, WritesAFileAndNothingElse) {
  JsonReport listener(folder_ / "new" / "report.json");
  listener.on_run_begin(sample_info());
  EXPECT_TRUE(fs::is_empty(folder_ / "new"));
  listener.on_run_end(sample_report(2));
  EXPECT_EQ(content_of(folder_ / "new" / "report.json"), to_json(sample_report(2)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "new"), {}), 1);
}

TEST_F(JsonReportTest, WritesTheFileBehindALink) {
  fs::create_directory(folder_ / "elsewhere");
  std::ofstream(folder_ / "elsewhere" / "file") << "old";
  fs::create_symlink(fs::path("elsewhere") / "file", folder_ / "link");
  JsonReport listener(folder_ / "link");
  listener.on_run_begin(sample_info());
  listener.on_run_end(sample_report(1));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content_of(folder_ / "elsewhere" / "file"), to_json(sample_report(1)));
}

TEST_F(JsonReportTest, RefusesWhatCannotBeAFileBeforeTheRun) {
  std::ofstream(folder_ / "file") << "x";
  for (const fs::path& path : {folder_, folder_ / "file" / "report.json"}) {
    JsonReport listener(path);
    EXPECT_THROW(listener.on_run_begin(sample_info()), ConfigError) << path;
  }
  EXPECT_EQ(testing_support::message_of<ConfigError>(
                [&] { JsonReport(folder_).on_run_begin(sample_info()); }),
            "cannot write the report to " + folder_.string() + ": it is a folder");
}

TEST_F(JsonReportTest, WritesThroughAPipe) {
  const fs::path path = folder_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string content;
  std::thread reader([&] { content = content_of(path); });
  JsonReport listener(path);
  listener.on_run_begin(sample_info());
  listener.on_run_end(sample_report(1));
  reader.join();
  EXPECT_EQ(content, to_json(sample_report(1)));
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST_F(JsonReportTest, NamesAFullDevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  JsonReport listener("/dev/full");
  listener.on_run_begin(sample_info());
  EXPECT_EQ(testing_support::message_of<DataError>([&] { listener.on_run_end(sample_report(1)); }),
            "cannot write /dev/full");
}

}  // namespace
}  // namespace lockstep::report
