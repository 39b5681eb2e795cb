// The recipes through the program, as their users run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/program_run.h>
#include <tests/support/data_bytes.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

nlohmann::json train(std::vector<std::string> arguments, const std::string& data) {
  const TemporaryDirectory scratch;
  const std::string report = (scratch / "report.json").string();
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "train"});
  arguments.insert(arguments.end(), {"--json", report});
  const ProgramResult result = run_to_end(arguments, {{"LOCKSTEP_DATA", data}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
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
  // The logarithm of ten is where guessing starts.
  EXPECT_NEAR(report["epochs"][0]["train_loss"].get<double>(), 2.303, 1.2);
  EXPECT_TRUE(report["test"]["loss"].is_number());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Cifar10, ::testing::Values("32", "bf16"),
                         [](const auto& info) { return std::string("p") + info.param; });

TEST(Mnist, ReachesItsAccuracy) {
  LOCKSTEP_SKIP_WITHOUT("mnist");
  const auto report = train({"mnist", "--nproc-per-node", "2"}, std::getenv("LOCKSTEP_DATA"));
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["epochs"].size(), 10U);
  EXPECT_GE(report["test"]["accuracy"].get<double>(), 0.98);
}

}  // namespace
}  // namespace lockstep::testing_support
