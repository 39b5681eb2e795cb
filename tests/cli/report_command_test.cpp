// `lockstep report` and `lockstep doctor` as their users see them.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/cpu.h>
#include <lockstep/core/strings.h>
#include <tests/cli/train_command.h>
#include <tests/report/sample_record.h>
#include <tests/support/well_formed.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportCommand : public TrainCommand {
 protected:
  ProgramResult report(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "report"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_forked(words);
  }
  void train_run(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        "mnist",         "--max-epochs", "2",     "--batch-size",  "16", "--threads", "1",
        "--accelerator", "cpu",          "--out", in_scratch(name)};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = execute(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
};

TEST_F(ReportCommand, WritesAPageAboutATracedRun) {
  train_run("run", {"--nproc-per-node", "2", "--workers", "1", "--trace", "--trace-steps", "2"});
  const ProgramResult result = report({in_scratch("run")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              ::testing::MatchesRegex(".*run/report.html: [0-9.]+ kB; open it in a browser\n"));
  const std::string page = read_text(scratch / "run/report.html");
  EXPECT_EQ(malformed(page), "");
  for (const char* part :
       {"id=\"overview\"", "id=\"learning\"", "id=\"speed\"", "id=\"utilisation\"",
        "Timeline of step 8", "Critical path", "Who waits for whom", "rank 1, bucket 0",
        "The loader's queue", "Validation: accuracy", "versions: libtorch",
        "train mnist --max-epochs 2", "epoch 2, backward: "}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("Train with --trace")));
  // NaN or infinity as a number in the text, in an attribute or in a path. Host names may contain
  // these letters.
  EXPECT_THAT(page, Not(ContainsRegex("[>\" ML]-?(nan|inf)[<\" %L]")));
}

TEST_F(ReportCommand, ComparesThreeRuns) {
  train_run("one", {"--strategy", "single"});
  train_run("two", {"--nproc-per-node", "2"});
  write_sample_record(scratch, "failed", {.state = "failed", .error = "rank 1 died", .epochs = 0});
  const ProgramResult result = report({in_scratch("one"), in_scratch("two"), in_scratch("failed"),
                                       "--out", in_scratch("all.html")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_text(scratch / "all.html");
  EXPECT_EQ(malformed(page), "");
  for (const char* part : {"Lockstep: one, two, failed", "failed: rank 1 died", "Speed-up by ranks",
                           "one, training, epoch 2: ", "id=\"run-3\"", "Train with --trace"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

// The output of `train --json` can be given in place of a run's folder, alone or together with one.
TEST_F(ReportCommand, TakesTheRecordsOfRuns) {
  const ProgramResult trained =
      train({"mnist", "--max-epochs", "2", "--batch-size", "16", "--threads", "1", "--accelerator",
             "cpu", "--json", in_scratch("mnist_ddp.json"), "--nproc-per-node", "2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult alone = report({in_scratch("mnist_ddp.json")});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("mnist_ddp.html: "));
  const std::string page = read_text(scratch / "mnist_ddp.html");
  EXPECT_EQ(malformed(page), "");
  for (const char* part :
       {"Lockstep: mnist_ddp<", "a record without the command and the time of its run",
        "epoch 2, backward: ", "Validation: accuracy", "id=\"limits\"", "id=\"configuration\""}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("<code></code>")));

  write_sample_record(scratch, "run", {});
  const ProgramResult both = report({in_scratch("mnist_ddp.json"), in_scratch("run/run.json")});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  const std::string compared = read_text(scratch / "mnist_ddp.html");
  EXPECT_EQ(malformed(compared), "");
  EXPECT_THAT(compared, HasSubstr("Lockstep: mnist_ddp, run<"));
  EXPECT_EQ(report({in_scratch("run/run.json")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/report.html"));

  const ProgramResult advice =
      run_forked({LOCKSTEP_PROGRAM, "doctor", in_scratch("mnist_ddp.json")});
  EXPECT_EQ(advice.exit_code, 0) << advice.err;
  EXPECT_THAT(advice.out, HasSubstr("mnist"));
}

// Even if the rows of a table come first, the page is written into the run's folder.
TEST_F(ReportCommand, WritesIntoTheFirstFolder) {
  write_sample_record(scratch, "run", {});
  scratch.write("rows.json", "[]");
  const ProgramResult result = report({in_scratch("rows.json"), in_scratch("run")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/report.html"));
  // Without a folder, the first record counts, which is not necessarily the first input.
  scratch.write("alone.json", sample_record({}));
  scratch.write("second.json", sample_record({}));
  const ProgramResult records =
      report({in_scratch("rows.json"), in_scratch("alone.json"), in_scratch("second.json")});
  EXPECT_EQ(records.exit_code, 0) << records.err;
  EXPECT_THAT(scratch.names(), ::testing::ElementsAre("alone.html", "alone.json", "rows.json",
                                                      "run", "second.json"));
}

TEST_F(ReportCommand, ReplacesNoInput) {
  write_sample_record(scratch, "run", {});
  scratch.write("run/trace.json", "{}");
  scratch.write("rows.json", "[]");
  std::filesystem::create_symlink(in_scratch("run/run.json"), scratch / "link.html");
  const std::string record = read_text(scratch / "run/run.json");
  for (const char* out :
       {"run/run.json", "run/trace.json", "run/metrics.csv", "run/../rows.json", "link.html"}) {
    expect_one_error(report({in_scratch("run"), in_scratch("rows.json"), "--out", in_scratch(out)}),
                     2, "report: --out must not replace what a run has left, got ", out);
  }
  EXPECT_EQ(read_text(scratch / "run/run.json"), record);
  EXPECT_EQ(read_text(scratch / "run/trace.json"), "{}");
  EXPECT_EQ(read_text(scratch / "rows.json"), "[]");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/metrics.csv"));
}

TEST_F(ReportCommand, SaysWhatItCannotDo) {
  write_sample_record(scratch, "run", {});
  scratch.write("rows.json", "[]");
  scratch.write("other.json", "[1]");
  scratch.write("cut.json", R"({"epochs")");
  ASSERT_EQ(mkfifo(in_scratch("pipe").c_str(), 0600), 0);
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{in_scratch("none")},
       1,
       "none does not exist: give the folder of a `lockstep train --out` run"},
      {{}, 2, "RUN is required"},
      {{""}, 2, "must not be empty"},
      {{in_scratch("run"), "--out", in_scratch("no/page.html")}, 2, "report: --out: the folder "},
      {{in_scratch("run"), "--out", in_scratch("run")}, 2, "it is a folder"},
      {{in_scratch("run"), "--out", in_scratch("pipe")}, 2, "a device, a pipe or a socket"},
      {{in_scratch("rows.json")},
       2,
       "report: give at least one folder of a `lockstep train --out` run, or a record of"},
      {{in_scratch("other.json"), in_scratch("run")},
       1,
       "other.json is neither a record of `lockstep train --json` nor rows of `lockstep bench "
       "table --json`: expected object or array, got number"},
      {{in_scratch("cut.json")}, 1, "cut.json is not JSON: line 1, column 10"}};
  for (const Case& each : cases) {
    expect_one_error(report(each.arguments), each.exit_code, each.text, each.text);
  }
  EXPECT_THAT(scratch.names(),
              ::testing::ElementsAre("cut.json", "other.json", "pipe", "rows.json", "run"));
  EXPECT_TRUE(std::filesystem::is_fifo(scratch / "pipe"));
}

class DoctorCommand : public TrainCommand {
 protected:
  // The findings as JSON; text_ has them for people.
  nlohmann::json findings(Environment environment = {}) {
    environment.try_emplace("LOCKSTEP_DATA", data.path().string());
    environment.try_emplace("XDG_CACHE_HOME", in_scratch("cache"));
    const ProgramResult result =
        run_forked({LOCKSTEP_PROGRAM, "doctor", "--json", in_scratch("doctor.json")}, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    text_ = result.out;
    return nlohmann::json::parse(read_text(scratch / "doctor.json"));
  }

  std::string text_;
};

TEST_F(DoctorCommand, FindsWhatThisMachineAndThisBuildHave) {
  const nlohmann::json found = findings();
  const std::vector<int> cpus = available_cpus();
  EXPECT_EQ(found.at("cpus"), nlohmann::json(cpus));
  EXPECT_THAT(text_, HasSubstr(str("\ncpus        ", cpus.size(), " of ",
                                   sysconf(_SC_NPROCESSORS_ONLN), " usable (", join(cpus), ")\n")));
  EXPECT_EQ(found.at("processor"), cpu_model_name());
  EXPECT_EQ(found.at("simd"), simd_name());
  const nlohmann::json& memory = found.at("memory");
  EXPECT_GT(memory.at("available_bytes"), 0);
  EXPECT_GT(memory.at("total_bytes"), memory.at("available_bytes"));
  EXPECT_THAT(text_, ContainsRegex("\nmemory      [0-9.]+ .B available of [0-9.]+ .B\n"));
  const nlohmann::json& libtorch = found.at("libtorch");
  const bool has_cuda = libtorch.at("cuda_build").get<bool>();
  EXPECT_THAT(text_, HasSubstr(str("\nlibtorch    ", libtorch.at("version").get<std::string>(),
                                   has_cuda ? ", CUDA build\n" : ", CPU build\n")));
  const bool no_gpus = found.at("gpus").at("usable") == 0 && found.at("gpus").at("present").empty();
  EXPECT_EQ(text_.find("\ngpus        none\n") != std::string::npos, no_gpus);
  const auto listed = [&](const char* key) {
    return found.at(key).get<std::vector<std::string>>();
  };
  EXPECT_THAT(listed("backends"), ::testing::IsSupersetOf({"shm", "gloo", "hierarchical"}));
  EXPECT_THAT(listed("backends"), Not(::testing::Contains("auto")));
  EXPECT_THAT(listed("strategies"),
              ::testing::ElementsAre("single", "dp", "ddp", "zero1", "pipeline", "hybrid"));
  EXPECT_THAT(listed("optimizers"), ::testing::ElementsAre("sgd", "adam", "adamw"));
  EXPECT_THAT(listed("loaders"), ::testing::ElementsAre("native", "cuda", "dali"));
  EXPECT_THAT(listed("precisions"), ::testing::ElementsAre("32", "bf16", "16"));
}

TEST_F(DoctorCommand, FindsDataAndALauncher) {
  nlohmann::json found = findings();
  EXPECT_EQ(found.at("mnist"), data.path().string());
  EXPECT_EQ(found.at("cifar10"), nullptr);
  EXPECT_EQ(found.at("launcher"), nullptr);
  EXPECT_THAT(text_, HasSubstr(str("\nlauncher    none: ranks are started with --nproc-per-node\n"
                                   "mnist       ",
                                   data.path().string(), "\ncifar10     not found here\n")));

  data.write("cifar10/test_batch.bin", "alone");
  found = findings({{"RANK", "1"},
                    {"WORLD_SIZE", "3"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "3"},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", "29511"}});
  EXPECT_EQ(found.at("launcher"),
            nlohmann::json::parse(R"({"source": "torchrun", "rank": 1, "world_size": 3})"));
  EXPECT_THAT(text_, HasSubstr("\nlauncher    torchrun: rank 1 of 3\n"));
  EXPECT_EQ(found.at("cifar10"), nullptr);
  EXPECT_THAT(text_, HasSubstr(str("\ncifar10     ", (data / "cifar10").string(),
                                   " holds only a part of cifar10: ")));

  found = findings({{"RANK", "5"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(found.at("launcher"), nullptr);
  EXPECT_THAT(text_, HasSubstr("\nlauncher    unusable: "));
}

TEST_F(DoctorCommand, WritesItsAdviceAsJson) {
  write_sample_record(scratch, "run", {});
  const ProgramResult result = run_forked(
      {LOCKSTEP_PROGRAM, "doctor", in_scratch("run"), "--json", in_scratch("advice.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto advice = nlohmann::json::parse(read_text(scratch / "advice.json"));
  ASSERT_FALSE(advice.empty());
  double shares = 0;
  for (const nlohmann::json& each : advice) {
    EXPECT_THAT(result.out, HasSubstr("\n" + each.at("limit").get<std::string>() + ", "));
    EXPECT_THAT(result.out, HasSubstr(str(": ", each.at("figures").get<std::string>(), "\n  ",
                                          each.at("option").get<std::string>(), '\n')));
    EXPECT_GE(each.at("share"), 0);
    shares += each.at("share").get<double>();
  }
  EXPECT_LE(shares, 1 + 1e-9);
}

}  // namespace
}  // namespace lockstep::testing_support
