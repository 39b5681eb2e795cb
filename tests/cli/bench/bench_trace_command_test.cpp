// `--trace` of `lockstep bench`: one file per row with the activity of all ranks.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/forked_program.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

class BenchTraceCommand : public ::testing::Test {
 protected:
  void bench(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "bench"});
    arguments.insert(arguments.end(), {"--trace", (folder_ / "traces").string()});
    const ProgramResult result = run_forked(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.left_behind, 0);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "traces")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  // The names of one rank's spans.
  std::multiset<std::string> spans(const std::string& file, int rank) const {
    std::multiset<std::string> names;
    for (const json& event : events(file)) {
      if (event.at("ph") == "X" && event.at("pid") == rank) {
        names.insert(event.at("name").get<std::string>());
      }
    }
    return names;
  }
  std::size_t flows(const std::string& file) const {
    const json all = events(file);
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const json& event) { return event.at("ph") == "f"; }));
  }

  TemporaryDirectory folder_;

 private:
  json events(const std::string& file) const {
    return json::parse(read_text(folder_ / "traces" / file)).at("traceEvents");
  }
};

TEST_F(BenchTraceCommand, ShowsTheCallsOfARow) {
  bench({"comm", "--collective", "all_reduce,broadcast", "--sizes", "1KiB", "--private",
         "--repetitions", "2"});
  EXPECT_THAT(files(), UnorderedElementsAre("all_reduce-auto-1024-bytes-private.json",
                                            "broadcast-native-1024-bytes-private.json"));
  for (int rank = 0; rank < 2; ++rank) {
    const auto names = spans("all_reduce-auto-1024-bytes-private.json", rank);
    EXPECT_EQ(names.count("all_reduce"), 10U);
    EXPECT_EQ(names.count("step 10"), 1U);
  }
  EXPECT_GE(flows("all_reduce-auto-1024-bytes-private.json"), 10U);
}

TEST_F(BenchTraceCommand, ShowsStepsOfEachVariant) {
  bench({"step", "--strategy", "ddp,zero1", "--bucket-cap-mb", "0.01,whole", "--rounds", "1",
         "--steps", "1", "--batch-per-rank", "4"});
  EXPECT_THAT(files(), UnorderedElementsAre("ddp-as-is-buckets-0.01-MiB.json",
                                            "ddp-as-is-buckets-whole.json",
                                            "zero1-shared-buckets-0.01-MiB.json",
                                            "zero1-shared-buckets-whole.json"));
  for (int rank = 0; rank < 2; ++rank) {
    const auto names = spans("ddp-as-is-buckets-whole.json", rank);
    for (const char* phase : {"zero gradients", "forward", "optimizer", "reduction"}) {
      EXPECT_EQ(names.count(phase), 10U) << phase;
    }
    EXPECT_GT(spans("ddp-as-is-buckets-0.01-MiB.json", rank).count("reduction"), 10U)
        << "several buckets in each step";
    // The span of a bucket's reduction replaces that of the collective it calls.
    EXPECT_EQ(names.count("all_reduce"), 0U);
    // ZeRO on shared memory has barriers only.
    EXPECT_GE(spans("zero1-shared-buckets-whole.json", rank).count("barrier"), 20U);
    EXPECT_EQ(spans("zero1-shared-buckets-whole.json", rank).count("reduction"), 0U);
  }
  EXPECT_GE(flows("ddp-as-is-buckets-whole.json"), 10U);
}

TEST_F(BenchTraceCommand, ShowsStepsOfEachStrategy) {
  bench({"step", "--strategy", "all", "--only", "single,ddp,pipeline-1f1b", "--rounds", "1",
         "--steps", "1", "--batch", "8", "--micro-batches", "2"});
  EXPECT_THAT(files(), UnorderedElementsAre("single.json", "ddp.json", "pipeline-1f1b.json"));
  EXPECT_THAT(spans("pipeline-1f1b.json", 0), IsSupersetOf({"0F0", "1B1", "step 1", "optimizer"}));
  EXPECT_EQ(spans("ddp.json", 1).count("step 10"), 1U + 1U);  // the loop's span and the reducer's
  EXPECT_TRUE(spans("single.json", 1).empty());
}

// Flows connect each rank's messages to the other rank, which waits until they are sent.
TEST_F(BenchTraceCommand, ShowsTheWayOfMessagesBetweenStages) {
  bench({"step", "--strategy", "all", "--only", "pipeline-ranks-1f1b", "--rounds", "1", "--steps",
         "1", "--batch", "8", "--micro-batches", "2"});
  const std::string file = "pipeline-ranks-1f1b.json";
  EXPECT_GE(spans(file, 0).count("recv: waits for rank 1"), 1U);
  EXPECT_GE(spans(file, 1).count("recv: waits for rank 0"), 1U);
  const std::size_t received = spans(file, 0).count("recv") + spans(file, 1).count("recv");
  EXPECT_GE(received, 2U * 2U * 10U) << "activations and gradients of two micro-batches, ten steps";
  EXPECT_GE(flows(file), received - 2U) << "but for a message on its way when recording began";
}

TEST_F(BenchTraceCommand, ShowsTheThreadsOfALoader) {
  for (const char* split : {"train", "t10k"}) write_mnist(folder_, split, 64);
  bench({"loader", "--dataset", "mnist", "--threads", "0,2", "--batch-size", "3", "--rounds", "1",
         "--seconds", "0.01", "--data", folder_.path().string()});
  EXPECT_THAT(files(), UnorderedElementsAre("native-0-threads.json", "native-2-threads.json"));
  EXPECT_EQ(spans("native-2-threads.json", 0).count("wait for data 19"), 1U);
  EXPECT_THAT(spans("native-2-threads.json", 0), IsSupersetOf({"load batch 0", "load batch 9"}));
}

TEST_F(BenchTraceCommand, NeedsAFolderThatTakesFiles) {
  for (const char* what : {"comm", "step", "loader"}) {
    const ProgramResult result =
        run_forked({LOCKSTEP_PROGRAM, "bench", what, "--trace", "/dev/null/traces"});
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_THAT(result.err, HasSubstr(std::string("bench ") + what + ": --trace: ")) << what;
    EXPECT_EQ(result.error_lines(), 1) << result.err;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
