#include <lockstep/cli/simulate/simulate_text.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <lockstep/simulate/extrapolation.h>
#include <lockstep/simulate/simulation.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kAccepted = "nothing was thrown";
constexpr const char* kProfile = R"({"name": "net", "forward_seconds": 0.1, "backward_seconds": 0.2,
  "optimizer_seconds": 0.01, "buckets": [{"bytes": 1e7, "ready_seconds": 0.1},
                                         {"bytes": 1e7, "ready_seconds": 0.2}]})";

// A measurement of an all-reduce with 1,000 and with 2,000 bytes.
std::string wire_of(const std::string& backend, int ranks, const std::string& beside = "") {
  const auto row = [&](int bytes) {
    return str(R"({"collective": "all_reduce", "algorithm": "auto", "backend": ")", backend,
               R"(", "symmetric": false, "median_us": 5, "ranks": )", ranks, R"(, "bytes": )",
               bytes, beside, "}");
  };
  return str("[", row(1000), ",", row(2000), "]");
}

class SimulateText : public ::testing::Test {
 protected:
  SimulateText() {
    folder_.write("profile.json", kProfile);
    arguments_.run = (folder_ / "profile.json").string();
    arguments_.ranks = "1..4";
    arguments_.network = "100,1";  // 10 MB take 10.2 ms on two ranks
  }
  std::string text() const {
    const cli::SimulateSettings settings = cli::resolve(arguments_);
    return cli::simulate_text(settings, cli::simulate(settings));
  }
  std::string refusal() const {
    return message_of<Error>([&] { cli::resolve(arguments_); });
  }
  TemporaryDirectory folder_;
  cli::SimulateArguments arguments_;
};

TEST_F(SimulateText, IsATableOverRanksAndOneOfAnswers) {
  EXPECT_THAT(
      text(),
      StartsWith("net: a profile, 310 ms a step of one rank\n"
                 "data 0, forward 100, backward 200, optimizer 10.0, other 0 ms; "
                 "20.0 MB of gradients in 2 buckets\n"
                 "predicted: ddp over 100,1\n\n"
                 "ranks  step ms  interval ms  efficiency  exposed ms  taken ms  stragglers ms  "
                 "buckets  algorithm\n"
                 "1          310   270 to 365        100%           0         0              0  "
                 "      0  none\n"
                 "2          320   286 to 364       96.8%        10.2         0              0  "
                 "      2  "));
  EXPECT_THAT(text(), HasSubstr("\nColumns: efficiency is the step time of one rank divided by "));
  EXPECT_THAT(text(), HasSubstr(", extrapolated\n\nwhat if, 4 ranks "));
  EXPECT_THAT(text(), HasSubstr("\nExtrapolated: the rows whose last column says so; --json gives "
                                "the reasons of each row.\n"));
  EXPECT_THAT(text(), HasSubstr("\nbf16 gradients "));
}

TEST_F(SimulateText, IsMarkdownWhereItIsAsked) {
  arguments_.format = "markdown";
  EXPECT_THAT(
      text(),
      HasSubstr(
          "| ranks | step ms | interval ms | efficiency | exposed ms | taken ms | stragglers ms | "
          "buckets | algorithm |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n"
          "| 1 | 310 | 270 to 365 | 100% |"));
  EXPECT_THAT(text(), HasSubstr("\n- Columns: efficiency is "));
  EXPECT_THAT(text(), HasSubstr("\n- Interval: in checks on 2 ranks over a connection of this "
                                "kind, 95% of the measured"));
  EXPECT_THAT(text(), HasSubstr("\n- Extrapolated: the network 100,1 was never measured"));
}

TEST_F(SimulateText, SaysInALineEachWhatItGoesBeyond) {
  folder_.write("profile.json", str(R"({"processors": 2, "threads_per_rank": 1, )", kProfile + 1));
  arguments_.ranks_per_host = 4;
  EXPECT_THAT(text(), HasSubstr("\nExtrapolated: 4 ranks of one host compute with 4 threads, and "
                                "the host of the run has 2 processors: "));
  EXPECT_THAT(text(), EndsWith("\nExtrapolated: the network 100,1 was never measured: its latency "
                               "and rate are assumed, and no interval was checked there "
                               "(`lockstep bench comm --beside-computing --json` measures "
                               "yours).\n"));
  folder_.write("wire.json", wire_of("gloo", 2));
  arguments_.network = (folder_ / "wire.json").string();
  arguments_.ranks = "2";
  EXPECT_THAT(text(),
              EndsWith("\nExtrapolated: buckets on 2 ranks of 10 MB are beyond the "
                       "measured 1 kB to 2 kB: their times are extrapolated (`lockstep bench "
                       "comm --sizes` measures others).\n"));
  EXPECT_THAT(text(),
              HasSubstr("were within their predicted intervals (see docs/simulate.md in the "
                        "sources).\n"));
  folder_.write("wire.json", wire_of("gloo", 2, R"(, "processors": 1)"));
  EXPECT_THAT(text(), HasSubstr("predicted intervals; its upper end is 4 ms later, because Gloo's "
                                "threads may wait that long for the rank's only processor (see"));
}

// Other programs took 56% of a step.
TEST_F(SimulateText, SaysThatOtherProgramsDisturbedTheRun) {
  cli::SimulateSettings settings = cli::resolve(arguments_);
  const auto json = [&] {
    return nlohmann::json::parse(cli::to_json(settings, cli::simulate(settings)));
  };
  EXPECT_FALSE(settings.disturbance) << "nothing is known of a profile";
  EXPECT_THAT(cli::simulate_text(settings, cli::simulate(settings)),
              ::testing::Not(HasSubstr("disturbed")));
  EXPECT_TRUE(json().at("other_programs").is_null());
  settings.disturbance = report::Advice{.limit = report::kOtherPrograms, .share = 0.5625};
  EXPECT_THAT(cli::simulate_text(settings, cli::simulate(settings)),
              HasSubstr("\nThe run was disturbed: other programs took 56% of a step from it. The "
                        "predictions include this time; repeat the run on a quiet machine.\n\n"
                        "ranks  step ms"));
  EXPECT_EQ(json().at("other_programs"), 0.5625);
}

// The record of an epoch in which a step spent 40% of its time waiting for a batch, and the share
// `waited` waiting for a processor. Other programs used the share `busy` of the processors, and the
// run used a tenth.
std::string record_beside_others(double busy, double waited) {
  return str(R"({"recipe": "net", "strategy": "ddp", "loader": "native", "backend": "shm",
                 "device": "cpu", "world_size": 2, "threads_per_rank": 1, "usable_processors": 8,
                 "global_batch": 64, "epochs": [{"epoch": 1, "steps": 10, "seconds": 2.0,
                 "phases": {"data": 0.8, "forward": 0.4, "backward": 0.5, "optimizer": 0.2},
                 "processor_seconds": 0.8, "processor_wait_seconds": )",
             2 * waited, R"(, "busy_processors": )", 0.1 + busy, "}]}");
}

// A rank with four steps of 3 ms and one bucket.
RankTrace four_steps_of(int rank) {
  RankTrace trace{.rank = rank};
  const auto add = [&](int begin, int length, const char* name, const char* category,
                       const char* track, std::map<std::string, std::string> arguments = {}) {
    const Clock::time_point from{std::chrono::microseconds(begin)};
    trace.spans.push_back({name, category, from, from + std::chrono::microseconds(length), track,
                           std::move(arguments)});
  };
  for (int begin = 0; begin < 4 * 3000; begin += 3000) {
    add(begin, 2900, "step", "step", "training");
    add(begin + 1000, 1500, "backward", "phase", "training");
    add(begin + 1100, 1000, "backward", "backward", "backward");
    add(begin + 2600, 200, "optimizer", "phase", "training");
    add(begin + 1500, 300, "reduction", "communication", "bucket 0", {{"bytes", "4000"}});
  }
  return trace;
}

// The loader took more of a step than the other programs.
TEST_F(SimulateText, FindsOtherProgramsBesideALargerLimit) {
  write_chrome_trace(folder_ / "trace.json", {four_steps_of(0), four_steps_of(1)});
  const auto disturbance = [&](const std::string& record) {
    folder_.write("run.json", record);
    arguments_.run = folder_.path().string();
    return cli::resolve(arguments_).disturbance;
  };
  const auto found = disturbance(record_beside_others(0.5, 0.2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->limit, report::kOtherPrograms);
  EXPECT_NEAR(found->share, 0.2, 1e-9);
  EXPECT_FALSE(disturbance(record_beside_others(0.01, 0.2))) << "the processors were idle";
  EXPECT_FALSE(disturbance(record_beside_others(0.5, 0.01))) << "the run was not slower";
  EXPECT_FALSE(disturbance(R"({"recipe": "net", "strategy": "ddp", "loader": "native",
      "backend": "shm", "device": "cpu", "world_size": 2, "threads_per_rank": 1,
      "global_batch": 64, "epochs": []})"))
      << "it was interrupted in its first epoch";
}

TEST_F(SimulateText, HasTheFiguresAsJson) {
  const cli::SimulateSettings settings = cli::resolve(arguments_);
  const auto json = nlohmann::json::parse(cli::to_json(settings, cli::simulate(settings)));
  EXPECT_EQ(json.at("run").at("name"), "net");
  ASSERT_EQ(json.at("rows").size(), 3U);
  EXPECT_EQ(json.at("rows").at(1).at("ranks"), 2);
  EXPECT_NEAR(json.at("rows").at(1).at("step_ms").get<double>(), 320.2, 1e-6);
  EXPECT_NEAR(json.at("rows").at(1).at("exposed_ms").get<double>(), 10.2, 1e-6);
  EXPECT_NEAR(json.at("rows").at(1).at("interval_ms").at(0).get<double>(), 320.2 / 1.12, 1e-6);
  EXPECT_NEAR(json.at("rows").at(1).at("interval_ms").at(1).get<double>(), 320.2 / 0.88, 1e-6);
  EXPECT_EQ(json.at("what_if").at(0).at("interval_ms").size(), 2U);
  ASSERT_EQ(json.at("extrapolations").size(), 1U);
  EXPECT_THAT(json.at("extrapolations").at(0).get<std::string>(), HasSubstr("never measured"));
  EXPECT_EQ(json.at("what_if").at(0).at("name"), "as it is");
  EXPECT_EQ(json.at("rows").at(0).at("extrapolations").size(), 0U);
  EXPECT_EQ(json.at("rows").at(1).at("extrapolations"), json.at("extrapolations"));
  EXPECT_EQ(json.at("what_if").at(1).at("name"), "without communication");
  EXPECT_EQ(json.at("what_if").at(1).at("extrapolations").size(), 0U);
  nlohmann::json as_it_is = json.at("what_if").at(0);
  as_it_is.erase("name");
  EXPECT_EQ(as_it_is, json.at("rows").at(2)) << "the answers are about the last number of ranks";
  EXPECT_EQ(as_it_is.at("ranks"), 4);
}

// Every option reaches the rows, the answers and the notes.
TEST_F(SimulateText, PredictsWithItsOwnOptions) {
  arguments_.ranks = "8,2";
  arguments_.strategy = "zero1";
  arguments_.ranks_per_host = 2;
  const cli::SimulateSettings settings = cli::resolve(arguments_);
  const cli::SimulateResult result = cli::simulate(settings);
  ASSERT_EQ(result.rows.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const int ranks = i == 0 ? 8 : 2;
    const simulate::PredictedStep expected =
        simulate::predict_step(settings.profile, settings.network, ranks, settings.options);
    EXPECT_EQ(result.rows[i].ranks, ranks);
    EXPECT_EQ(result.rows[i].step_seconds, expected.step_seconds);
  }
  EXPECT_EQ(result.answers.at(0).step.step_seconds, result.rows[1].step_seconds);
  EXPECT_EQ(result.answers.at(0).step.ranks, 2);
  EXPECT_EQ(result.extrapolations,
            simulate::extrapolations(settings.profile, settings.network, {8, 2}, settings.options));
  EXPECT_THAT(cli::simulate_text(settings, result), HasSubstr("\nwhat if, 2 ranks "));
}

// Every figure has a value of its own, so that none can take the place of another.
TEST_F(SimulateText, ShowsEachFigureInItsPlace) {
  cli::SimulateSettings settings = cli::resolve(arguments_);
  settings.ranks = {8};
  settings.options.strategy = "zero1";
  settings.options.algorithm = "tree";
  settings.options.ranks_per_host = 4;
  simulate::StepProfile& run = settings.profile;
  run.strategy = "ddp";
  run.backend = "gloo";
  run.ranks = 2;
  run.steps = 5;
  run.step_seconds = 0.0125;
  run.data_seconds = 0.001;
  run.forward_seconds = 0.002;
  run.backward_seconds = 0.003;
  run.optimizer_seconds = 0.004;
  run.other_seconds = 0.005;
  run.buckets.resize(1);
  simulate::PredictedStep step;
  step.ranks = 8;
  step.step_seconds = 0.020;
  step.interval = {.low = 0.018, .high = 0.024};
  step.efficiency = 0.875;
  step.exposed_seconds = 0.006;
  step.taken_seconds = 0.007;
  step.straggler_seconds = 0.008;
  step.buckets = 9;
  step.algorithm = "ring";
  simulate::PredictedStep other = step;
  other.step_seconds = 0.010;
  other.extrapolations = {"why"};
  const cli::SimulateResult result{
      .rows = {step}, .answers = {{.name = "faster", .step = other}}, .extrapolations = {"why"}};
  EXPECT_THAT(cli::simulate_text(settings, result),
              StartsWith("net: a run of ddp on 2 ranks over gloo, 12.5 ms a step (5 traced steps)\n"
                         "data 1.00, forward 2.00, backward 3.00, optimizer 4.00, other 5.00 ms; "
                         "10.0 MB of gradients in 1 bucket\n"
                         "predicted: zero1 over 100,1, 4 ranks a host\n\n"));
  run.backend = "";
  run.step_seconds = 0;
  run.ranks = run.steps = 1;
  settings.options.ranks_per_host = 1;
  EXPECT_THAT(cli::simulate_text(settings, result),
              StartsWith("net: a run of ddp on 1 rank (1 traced step)\ndata 1.00, "));
  EXPECT_THAT(cli::simulate_text(settings, result), HasSubstr("\npredicted: zero1 over 100,1\n\n"));
  settings.options.ranks_per_host = 4;
  settings.format = "markdown";
  EXPECT_THAT(cli::simulate_text(settings, result),
              HasSubstr("\n| 8 | 20.0 | 18.0 to 24.0 | 87.5% | 6.00 | 7.00 | 8.00 | 9 | ring |\n"));
  EXPECT_THAT(cli::simulate_text(settings, result),
              HasSubstr("\n| faster | 10.0 | 18.0 to 24.0 | 87.5% | 6.00 | 7.00 | 8.00 | 9 | "
                        "ring, extrapolated |\n"));
  const auto json = nlohmann::json::parse(cli::to_json(settings, result));
  EXPECT_EQ(json.at("strategy"), "zero1");
  EXPECT_EQ(json.at("network"), "100,1");
  EXPECT_EQ(json.at("algorithm"), "tree");
  EXPECT_EQ(json.at("ranks_per_host"), 4);
  EXPECT_EQ(json.at("rows").at(0), nlohmann::json::parse(R"({"ranks": 8, "step_ms": 20.0,
      "interval_ms": [18.0, 24.0], "efficiency": 0.875, "exposed_ms": 6.0, "taken_ms": 7.0,
      "straggler_ms": 8.0, "algorithm": "ring", "buckets": 9, "extrapolations": []})"));
  EXPECT_EQ(json.at("what_if").at(0).at("name"), "faster");
  EXPECT_EQ(json.at("what_if").at(0).at("step_ms"), 10.0);
}

TEST_F(SimulateText, RefusesWhatCannotBe) {
  const auto with = [&](auto cli::SimulateArguments::* member, const auto& value) {
    const cli::SimulateArguments before = arguments_;
    arguments_.*member = value;
    const std::string text = refusal();
    arguments_ = before;
    return text;
  };
  EXPECT_EQ(refusal(), kAccepted);
  EXPECT_THAT(with(&cli::SimulateArguments::network, std::string("fast")),
              StartsWith("simulate: --network must be 1gbit, "));
  EXPECT_THAT(with(&cli::SimulateArguments::algorithm, std::string("star")),
              StartsWith("simulate: --algorithm must be one of"));
  EXPECT_THAT(with(&cli::SimulateArguments::strategy, std::string("dp")),
              StartsWith("simulate: --strategy must be one of"));
  EXPECT_THAT(with(&cli::SimulateArguments::format, std::string("csv")),
              StartsWith("simulate: --format must be one of"));
  EXPECT_THAT(with(&cli::SimulateArguments::bucket_cap_mb, std::string("0")),
              StartsWith("simulate: --bucket-cap-mb: expected a number of MiB above 0"));
  EXPECT_THAT(with(&cli::SimulateArguments::shares_parameters, true),
              HasSubstr("--shared-parameters belongs to --strategy"));
  EXPECT_THAT(with(&cli::SimulateArguments::run_network, std::string("/none")),
              HasSubstr("cannot read /none"));
  EXPECT_THAT(with(&cli::SimulateArguments::run, std::string("/none")),
              HasSubstr("/none does not exist: give the folder"));
}

// Before the run is read, so that no prediction is made that cannot be written.
TEST_F(SimulateText, RefusesAFileThatCannotBeWritten) {
  arguments_.run = "/none";
  arguments_.json = (folder_ / "missing/prediction.json").string();
  EXPECT_EQ(refusal(), str("simulate: --json: the folder ", (folder_ / "missing").string(),
                           " does not exist; create it first"));
  std::filesystem::create_directory(folder_ / "folder");
  arguments_.json = (folder_ / "folder").string();
  EXPECT_EQ(refusal(), str("simulate: --json must be a file, got ", (folder_ / "folder").string(),
                           ": it is a folder"));
}

TEST_F(SimulateText, TakesNumbersAtTheEndsOfTheirRanges) {
  const auto cap = [&](const char* text) {
    arguments_.bucket_cap_mb = text;
    const std::string message = refusal();
    arguments_.bucket_cap_mb.reset();
    return message;
  };
  EXPECT_EQ(cap("0.5"), kAccepted);
  EXPECT_EQ(cap("1000000"), kAccepted);
  for (const char* text : {"", "-1", "1000001", "25MB", "nan", "inf"}) {
    EXPECT_EQ(cap(text), str("simulate: --bucket-cap-mb: expected a number of MiB above 0, such as "
                             "25; got '",
                             text, "'"));
  }
  const auto per_host = [&](int ranks) {
    arguments_.ranks_per_host = ranks;
    return refusal();
  };
  EXPECT_EQ(per_host(1), kAccepted);
  EXPECT_EQ(per_host(1024), kAccepted);
  EXPECT_EQ(per_host(1025), "simulate: --ranks-per-host must be from 1 to 1024, got 1025");
}

// Every option has a value of its own, so that none can take the place of another.
TEST_F(SimulateText, HoldsWhatTheOptionsSay) {
  const cli::SimulateSettings usual = cli::resolve(arguments_);
  EXPECT_EQ(usual.format, "table");
  EXPECT_TRUE(usual.json.empty());
  EXPECT_EQ(usual.options.algorithm, "auto");
  EXPECT_EQ(usual.options.strategy, "ddp");
  EXPECT_EQ(usual.options.ranks_per_host, 1);
  EXPECT_FALSE(usual.options.shares_parameters);
  EXPECT_FALSE(usual.options.buckets);
  arguments_.ranks = "6,12";
  arguments_.algorithm = "ring";
  arguments_.strategy = "zero1";
  arguments_.ranks_per_host = 3;
  arguments_.shares_parameters = true;
  arguments_.bucket_cap_mb = "7";
  arguments_.format = "markdown";
  arguments_.json = (folder_ / "prediction.json").string();
  const cli::SimulateSettings given = cli::resolve(arguments_);
  EXPECT_THAT(given.ranks, ElementsAre(6, 12));
  EXPECT_EQ(given.options.algorithm, "ring");
  EXPECT_EQ(given.options.strategy, "zero1");
  EXPECT_EQ(given.options.ranks_per_host, 3);
  EXPECT_TRUE(given.options.shares_parameters);
  EXPECT_TRUE(given.options.buckets);
  EXPECT_EQ(given.format, "markdown");
  EXPECT_EQ(given.json, folder_ / "prediction.json");
  EXPECT_EQ(given.network.name, "100,1");
  EXPECT_EQ(given.profile.name, "net");
}

// With one rank per host nothing is shared; over shared memory all ranks are on one host.
TEST_F(SimulateText, SharesParametersWithinAHostOnly) {
  arguments_.strategy = "zero1";
  arguments_.shares_parameters = true;
  EXPECT_EQ(refusal(),
            "simulate: --shared-parameters needs ranks that share a host: give --ranks-per-host of "
            "2 or more, or a --network measured over shm, got one rank a host over 100,1");
  arguments_.ranks_per_host = 2;
  EXPECT_EQ(refusal(), kAccepted);
  arguments_.ranks_per_host = 1;
  folder_.write("wire.json", wire_of("shm", 2));
  arguments_.network = (folder_ / "wire.json").string();
  EXPECT_EQ(refusal(), kAccepted);
}

// The transfer costs of a run do not apply to another number of ranks.
TEST_F(SimulateText, RefusesARunNetworkOfAnotherRun) {
  const auto refusal_with = [&](int ranks, const std::string& beside) {
    folder_.write("wire.json", wire_of("shm", ranks, beside));
    arguments_.run_network = (folder_ / "wire.json").string();
    return refusal();
  };
  folder_.write("profile.json", str(R"({"ranks": 2, )", kProfile + 1));
  const std::string beside = R"(, "beside_us": 6, "taken_us": 1)";
  EXPECT_EQ(refusal_with(2, beside), kAccepted);
  EXPECT_THAT(refusal_with(2, ""),
              StartsWith("simulate: --run-network must be measured beside computing (bench comm "));
  EXPECT_THAT(refusal_with(4, beside),
              StartsWith("simulate: --run-network must be measured on the run's 2 ranks, got "));
}

TEST_F(SimulateText, TakesTheTransfersOfTheRunOutOfItsBackward) {
  folder_.write("profile.json", str(R"({"ranks": 2, )", kProfile + 1));
  folder_.write("wire.json", wire_of("shm", 2, R"(, "beside_us": 6, "taken_us": 1)"));
  const simulate::StepProfile whole = cli::resolve(arguments_).profile;
  EXPECT_DOUBLE_EQ(whole.backward_seconds, 0.2);
  arguments_.run_network = (folder_ / "wire.json").string();
  const simulate::StepProfile without = cli::resolve(arguments_).profile;
  EXPECT_LT(without.backward_seconds, 0.2);
  EXPECT_EQ(without.backward_seconds,
            simulate::without_transfers(whole, simulate::read_network(folder_ / "wire.json"))
                .backward_seconds);
}

TEST_F(SimulateText, ReplacesNothingThatItReads) {
  const auto expect_refusal = [&](const char* name) {
    arguments_.json = (folder_ / name).string();
    EXPECT_EQ(refusal(), str("simulate: --json must not replace what a run has left, got ",
                             *arguments_.json, "; name another file"));
  };
  arguments_.json = (folder_ / "prediction.json").string();
  EXPECT_EQ(refusal(), kAccepted);
  expect_refusal("profile.json");
  std::filesystem::create_symlink("profile.json", folder_ / "link.json");
  expect_refusal("link.json");
  folder_.write("wire.json", "[]");
  arguments_.run_network = (folder_ / "wire.json").string();
  expect_refusal("wire.json");
  arguments_.run_network.reset();
  arguments_.network = (folder_ / "wire.json").string();
  expect_refusal("wire.json");
  arguments_.network = "10gbit";
  arguments_.run = folder_.path().string();
  for (const char* name : {"run.json", "trace.json", "metrics.csv"}) {
    folder_.write(name, "{}");
    expect_refusal(name);
  }
}

TEST(RankList, HasPowersOfTwoBetweenItsEnds) {
  EXPECT_THAT(cli::parse_rank_list("--ranks", "1..8"), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(cli::parse_rank_list("--ranks", "3..20"), ElementsAre(3, 4, 8, 16, 20));
  EXPECT_THAT(cli::parse_rank_list("--ranks", "5..5"), ElementsAre(5));
  EXPECT_THAT(cli::parse_rank_list("--ranks", "2,1,12..16"), ElementsAre(2, 1, 12, 16));
  EXPECT_THAT(cli::parse_rank_list("--ranks", "4..8,5..7"), ElementsAre(4, 8, 5, 7));
  EXPECT_THAT(cli::parse_rank_list("--ranks", "1048576"), ElementsAre(1 << 20));
  EXPECT_THROW(cli::parse_rank_list("--ranks", "1048577"), ConfigError);
  EXPECT_EQ(cli::parse_rank_list("--ranks", "1..4096").size(), 13U);
  for (const char* text : {"", "0", "8..1", "1..", "..4", "1,", "x", "1...4", "2000000"}) {
    EXPECT_THROW(cli::parse_rank_list("--ranks", text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
