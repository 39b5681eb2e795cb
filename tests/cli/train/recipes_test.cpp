// The recipes as users run them, through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/forked_program.h>
#include <tests/support/data_bytes.h>
#include <tests/support/mnist_files.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

nlohmann::json train(std::vector<std::string> arguments, const std::string& data) {
  const TemporaryDirectory scratch;
  const std::string report = (scratch / "report.json").string();
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "train"});
  arguments.insert(arguments.end(), {"--json", report});
  const ProgramResult result = run_forked(arguments, {{"LOCKSTEP_DATA", data}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Some processors are slow in bfloat16.
  EXPECT_THAT(result.err,
              ::testing::AnyOf("", ::testing::MatchesRegex("[^\n]*bfloat16 is 5 to [^\n]*\n")));
  return result.exit_code == 0 ? nlohmann::json::parse(read_text(report)) : nlohmann::json();
}

class Cifar10 : public ::testing::TestWithParam<const char*> {};

TEST_P(Cifar10, TrainsAFewSteps) {
  const TemporaryDirectory data;
  data.write("data_batch_1.bin", cifar_records(10'000));
  for (const char* name : {"data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin", "test_batch.bin"}) {
    std::filesystem::create_hard_link(data / "data_batch_1.bin", data / name);
  }
  const auto report = train({"cifar10", "--max-steps", "6", "--batch-size", "8",
                             "--limit-test-batches", "1", "--precision", GetParam()},
                            data.path().string());
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["precision"], GetParam());
  EXPECT_EQ(report["global_batch"], 8);
  ASSERT_EQ(report["epochs"].size(), 1U);
  // Random guessing has a loss of log(10).
  EXPECT_NEAR(report["epochs"][0]["train_loss"].get<double>(), 2.303, 1.2);
  EXPECT_TRUE(report["validation"]["loss"].is_number());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Cifar10, ::testing::Values("32", "bf16"),
                         [](const auto& info) { return std::string("p") + info.param; });

// Trains on photographs for three epochs. The first one reads the files, the others use the cache.
TEST(Autoencoder, LearnsToGiveBackTrashNet) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const TemporaryDirectory scratch;
  const std::string report = (scratch / "report.json").string();
  const ProgramResult result =
      run_forked({LOCKSTEP_PROGRAM, "train", "autoencoder", "--data",
                  real_data("trashnet").value().string(), "--nproc-per-node", "2", "--threads", "1",
                  "--accelerator", "cpu", "--max-epochs", "3", "--json", report});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto run = nlohmann::json::parse(read_text(report));
  ASSERT_EQ(run["epochs"].size(), 3U);
  // PyTorch's program reaches the same loss (docs/benchmarks/autoencoder.md).
  EXPECT_LT(run["validation"]["loss"].get<double>(), 0.04);
  EXPECT_GT(run["validation"]["psnr"].get<double>(), 14.0);
}

// Trains on two pipelines of two ranks, then the same model in one process.
TEST(ResNet50Split, TrainsOnAMeshAndGoesOnUnsplit) {
  const TemporaryDirectory scratch;
  const std::string out = (scratch / "run").string();
  const std::vector<std::string> common = {"resnet50-split",
                                           "--batch-size",
                                           "8",
                                           "--accelerator",
                                           "cpu",
                                           "--threads",
                                           "1",
                                           "--out",
                                           out,
                                           "--limit-test-batches",
                                           "1"};
  auto first = common;
  first.insert(first.end(), {"--nproc-per-node", "4", "--strategy", "hybrid", "--shard-optimizer",
                             "--micro-batches", "2", "--max-steps", "1"});
  const auto on_mesh = train(first, "");
  ASSERT_TRUE(on_mesh.is_object());
  EXPECT_EQ(on_mesh["strategy"], "hybrid");
  EXPECT_EQ(on_mesh["world_size"], 4);
  EXPECT_EQ(on_mesh["stages"], 2);
  auto second = common;
  second.insert(second.end(), {"--resume", "--max-steps", "2"});
  const std::string report = (scratch / "report.json").string();
  second.insert(second.begin(), {LOCKSTEP_PROGRAM, "train"});
  second.insert(second.end(), {"--json", report});
  const ProgramResult result = run_forked(second);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("world_size 4 (now 1)"));
  EXPECT_EQ(nlohmann::json::parse(read_text(report))["strategy"], "single");
}

// Threads and ranks compute equal micro-batches with the same random numbers.
TEST(Mnist, TrainsInPipelinesOfThreadsAndOfRanks) {
  const TemporaryDirectory data;
  for (const char* split : {"train", "t10k"}) write_mnist(data, split, 64);
  const auto train_by = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"mnist", "--batch-size", "16", "--max-steps", "3", "--accelerator",
                               "cpu", "--threads", "1"});
    return train(std::move(more), data.path().string());
  };
  const auto threads = train_by({"--strategy", "pipeline"});
  const auto ranks = train_by({"--strategy", "pipeline", "--nproc-per-node", "2"});
  const auto every_layer =
      train_by({"--strategy", "pipeline", "--stages", "4", "--schedule", "zbv"});
  const auto hybrid = train_by({"--strategy", "hybrid", "--nproc-per-node", "4"});
  for (const auto& report : {threads, ranks, every_layer, hybrid}) {
    ASSERT_TRUE(report.is_object());
    ASSERT_EQ(report["epochs"].size(), 1U);
    // Random guessing has a loss of log(10).
    EXPECT_NEAR(report["epochs"][0]["train_loss"].get<double>(), 2.303, 1);
  }
  EXPECT_EQ(hybrid["strategy"], "hybrid");
  EXPECT_NEAR(ranks["epochs"][0]["train_loss"].get<double>(),
              threads["epochs"][0]["train_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(ranks["validation"]["loss"].get<double>(),
              threads["validation"]["loss"].get<double>(), 1e-6);
  EXPECT_EQ(every_layer["stages"], 4);
}

TEST(Mnist, ReachesItsAccuracy) {
  LOCKSTEP_SKIP_WITHOUT("mnist");
  const auto report = train({"mnist", "--nproc-per-node", "2"}, std::getenv("LOCKSTEP_DATA"));
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["epochs"].size(), 10U);
  EXPECT_GE(report["validation"]["accuracy"].get<double>(), 0.98);
}

}  // namespace
}  // namespace lockstep::testing_support
