// `lockstep bench` as its users see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/cpu.h>
#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/pack_writer.h>
#include <lockstep/formats/png.h>
#include <tests/cli/forked_program.h>

#include <tests/support/data_bytes.h>
#include <tests/support/devices/dali.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult bench(std::vector<std::string> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "bench"});
  return run_forked(arguments, environment);
}

void expect_success(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Other tests may keep the machine busy, which the program then reports.
  EXPECT_THAT(result.err, AnyOf("", StartsWith("note: Other programs used ")));
  EXPECT_EQ(result.left_behind, 0);
}

nlohmann::json rows_of(const std::filesystem::path& file) {
  return nlohmann::json::parse(read_text(file));
}

TEST(BenchCommand, TimesCollectivesBesideComputing) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows.json";
  expect_success(bench({"comm", "--collective", "all_reduce,reduce_scatter,all_gather,broadcast",
                        "--sizes", "64KiB", "--backend", "gloo", "--repetitions", "5",
                        "--beside-computing", "--json", file.string()}));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    if (row["collective"] == "broadcast") {
      EXPECT_FALSE(row.contains("beside_us"));
      continue;
    }
    EXPECT_GT(row["beside_us"], 0) << row;
    EXPECT_GE(row["taken_us"], 0) << row;
    EXPECT_LE(row["taken_us"], row["beside_us"]) << row;
  }
}

// Keeps every processor busy with a thread of this test, which the program sees as another program.
class BusyProcessors {
 public:
  BusyProcessors() {
    for (std::size_t i = 0; i < available_cpus().size(); ++i) {
      threads_.emplace_back([](const std::stop_token& end) {
        while (!end.stop_requested()) {
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

TEST(BenchCommand, SaysThatOtherProgramsHadProcessors) {
  if (!OtherPrograms().share()) GTEST_SKIP() << "this kernel does not tell";
  const TemporaryDirectory folder;
  write_mnist(folder, "train", 64);
  write_mnist(folder, "t10k", 64);
  const BusyProcessors busy;
  const std::vector<std::vector<std::string>> commands = {
      {"comm", "--collective", "all_reduce", "--sizes", "4", "--repetitions", "5"},
      {"step", "--model", "mnist", "--rounds", "1", "--steps", "1"},
      {"loader", "--dataset", "mnist", "--threads", "0", "--batch-size", "8", "--rounds", "1",
       "--seconds", "0.2", "--data", folder.path().string()}};
  for (const auto& command : commands) {
    const ProgramResult result = bench(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("note: Other programs used "),
                                  HasSubstr("% of the processors meanwhile: measure again")))
        << command.front();
  }
}

TEST(BenchCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* error;
  };
  const Case cases[] = {
      {{},
       2,
       "error: lockstep bench needs a command (comm, loader, step, table): see lockstep "
       "bench --help\n"},
      {{"com"}, 2, "error: unknown command 'com'; did you mean 'comm'?\n"},
      {{"comm", "--size", "4"},
       2,
       "error: unknown option '--size' of lockstep bench comm; did you mean '--sizes'?\n"},
      {{"comm", "--repetitions", "x"}, 2, "error: --repetitions: must be a whole number, got 'x'"},
      {{"comm", "--collective", "sum"},
       2,
       "error: bench comm: --collective must be one of all_reduce, "},
      {{"comm", "--backend", "gloo", "--symmetric", "--sizes", "4"},
       2,
       "error: bench comm: --symmetric: backend gloo has no symmetric memory"},
      {{"comm", "--bytes", "1MiB"}, 2, "error: bench comm: --bytes belongs to --explain"},
      {{"loader", "--dataset", "x"},
       2,
       "error: bench loader: --dataset must be one of mnist, cifar10, cifar100, a folder of images "
       "or a pack, got "
       "'x', which does not exist\n"},
      {{"loader", "--loader", "gpu"},
       2,
       "error: bench loader: --loader must be one of native, cuda, dali, got 'gpu'\n"},
      {{"loader", "--decoding", "fast"},
       2,
       "error: bench loader: --decoding must be one of exact, scaled, got 'fast'\n"},
      {{"loader", "--loader", "native,dali", "--decoding", "scaled"},
       2,
       "error: bench loader: --decoding scaled needs --loader native, got dali\n"},
      {{"loader", "--threads", "1,x"},
       2,
       "error: bench loader: --threads: expected whole numbers from 0 to 1024, separated by "
       "commas, such as 1,4; got 'x'\n"},
      {{"loader", "--threads", "1024,1025"}, 2, "error: bench loader: --threads: expected whole "},
      {{"loader", "--layout", "hwc"},
       2,
       "error: bench loader: --layout must be one of nchw, nhwc, got 'hwc'"},
      {{"loader", "--batch-size", "0"},
       2,
       "error: bench loader: --batch-size must be at least 1, got 0\n"},
      {{"loader", "--seconds", "0"},
       2,
       "error: bench loader: --seconds must be from 0.001 to 3600, got 0\n"},
      {{"step", "--rounds", "x"}, 2, "error: --rounds: must be a whole number, got 'x'"},
      {{"step", "--strategy", "dpp"},
       2,
       "error: bench step: --strategy must be one of all, single, dp, ddp, zero1, pipeline, "
       "hybrid, got 'dpp'; did you mean 'ddp'?\n"},
  };
  for (const Case& each : cases) {
    const ProgramResult result = bench(each.arguments);
    EXPECT_EQ(result.exit_code, each.exit_code) << result.err;
    EXPECT_THAT(result.err, StartsWith(each.error));
    EXPECT_EQ(result.error_lines(), 1) << result.err;
    EXPECT_EQ(result.left_behind, 0);
  }
}

TEST(BenchCommand, RefusesValuesBeforeItMeasures) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"comm", "--seconds", "0"}, "bench comm: --seconds must be from 0.001 to "},
      {{"comm", "--timeout", "0"}, "bench comm: --timeout must be from 0.1 to "},
      {{"loader", "--precision", "8"},
       "bench loader: --precision must be one of 32, bf16, 16, got '8'"},
      {{"loader", "--rounds", "0"}, "bench loader: --rounds must be at least 1, got 0\n"},
      {{"loader", "--seconds", "3601"},
       "bench loader: --seconds must be from 0.001 to 3600, got 3601\n"},
      {{"loader", "--size", "65537"}, "bench loader: --size must be from 1 to 65536, got 65537\n"},
      {{"loader", "--threads", "-1"}, "bench loader: --threads: expected whole numbers from 0 to "},
      {{"loader", "--json", "none/rows.json"},
       "bench loader: --json: the folder none does not exist; create it first\n"},
      {{"loader", "--dataset", "cifar100", "--data", "/nowhere"},
       "the data folder /nowhere does not exist"}};
  for (const auto& [arguments, error] : cases) {
    const ProgramResult result = bench(arguments);
    EXPECT_EQ(result.exit_code, 2) << error;
    EXPECT_THAT(result.err, StartsWith(str("error: ", error)));
    EXPECT_EQ(result.error_lines(), 1) << result.err;
  }
}

// The line of the table that shows `row`.
std::string shown_loader_row(const nlohmann::json& row) {
  auto rounds = row["rounds"].get<std::vector<double>>();
  std::sort(rounds.begin(), rounds.end());
  const double rate = row["images_per_second"].get<double>();
  const double copy = row["copy_images_per_second"].get<double>();
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(),
                "%6s%9d%10.0f  (%.0f to %.0f), %.0f%% of a copy of its bytes (%.0f)\n",
                row["engine"].get<std::string>().c_str(), row["threads"].get<int>(), rate,
                rounds.front(), rounds.back(), 100 * rate / copy, copy);
  return line.data();
}

TEST(BenchCommand, CountsTheImagesOfALoader) {
  const TemporaryDirectory folder;
  for (const char* split : {"train", "t10k"}) write_mnist(folder, split, 64);
  const auto file = folder / "rows";
  const ProgramResult result = bench({"loader",
                                      "--dataset",
                                      "mnist",
                                      "--operators",
                                      "crop-flip-cutout",
                                      "--threads",
                                      "0,2",
                                      "--batch-size",
                                      "3",
                                      "--precision",
                                      "bf16",
                                      "--layout",
                                      "nhwc",
                                      "--rounds",
                                      "3",
                                      "--seconds",
                                      "0.01",
                                      "--data",
                                      folder.path().string(),
                                      "--json",
                                      file.string()});
  expect_success(result);
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 2U);
  std::string expected =
      "MNIST train, crop-flip-cutout, batches of 3, precision bf16, nhwc\n"
      "engine  threads  images/s (median, slowest and fastest of 3 rounds)\n";
  for (const auto& row : rows) expected += shown_loader_row(row);
  EXPECT_EQ(result.out, expected);
  EXPECT_EQ(rows[0]["threads"], 0);
  EXPECT_EQ(rows[1]["threads"], 2);
  for (const auto& row : rows) {
    EXPECT_EQ(row["engine"], "native");
    EXPECT_EQ(row["dataset"], "mnist");
    EXPECT_EQ(row["operators"], "crop-flip-cutout");
    EXPECT_EQ(row["decoding"], "exact");
    EXPECT_EQ(row["precision"], "bf16");
    EXPECT_EQ(row["layout"], "nhwc");
    EXPECT_EQ(row["skipped_images"], 0);
    EXPECT_EQ(row["batch_size"], 3);
    ASSERT_EQ(row["rounds"].size(), 3U);
    auto rounds = row["rounds"].get<std::vector<double>>();
    std::sort(rounds.begin(), rounds.end());
    EXPECT_EQ(row["images_per_second"], rounds[1]);
    EXPECT_GT(rounds[0], 0);
    EXPECT_GT(row["copy_images_per_second"], 0);
  }
}

// Images of one, three and four channels are normalized by as many means.
TEST(BenchCommand, LoadsImagesOfAnyNumberOfChannels) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const std::string pixels = pattern(std::size_t{4} * 8 * 8);
  for (const int channels : {1, 3, 4}) {
    formats::PackWriter writer(folder / "a.pack",
                               {.name = "squares", .channels = channels, .num_classes = 1},
                               /*records=*/4);
    for (int i = 0; i < 4; ++i) {
      writer.add({as_bytes(pixels).first(static_cast<std::size_t>(channels) * 8 * 8), 0, 8, 8});
    }
    writer.finish();
    expect_success(bench({"loader", "--dataset", (folder / "a.pack").string(), "--operators",
                          "normalize", "--threads", "0", "--batch-size", "2", "--rounds", "1",
                          "--seconds", "0.001", "--json", file.string()}));
    EXPECT_EQ(rows_of(file).size(), 1U) << channels;
  }
}

TEST(BenchCommand, CountsTheImagesOfDali) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const TemporaryDirectory folder;
  for (const char* split : {"train", "t10k"}) write_mnist(folder, split, 64);
  const auto file = folder / "rows";
  expect_success(
      bench({"loader", "--dataset", "mnist", "--engine", "native,dali", "--operators", "crop-flip",
             "--threads", "1", "--batch-size", "16", "--rounds", "1", "--seconds", "0.01", "--data",
             folder.path().string(), "--json", file.string()}));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["engine"], "native");
  EXPECT_EQ(rows[1]["engine"], "dali");
  EXPECT_GT(rows[1]["images_per_second"], 0);
}

TEST(BenchCommand, CountsTheImagesOfAFolder) {
  const TemporaryDirectory folder;
  for (const std::string name : {"cats/1.png", "cats/2.png", "dogs/3.png"}) {
    folder.write(name, detail::encode_png(std::vector<std::uint8_t>(20 * 24 * 3, 9), 20, 24));
  }
  const ProgramResult refused =
      bench({"loader", "--dataset", folder.path().string(), "--operators", "crop-flip"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, ::testing::HasSubstr("needs images of one size"));
  const auto file = folder / "rows";
  expect_success(bench({"loader", "--dataset", folder.path().string(), "--operators",
                        "random-resized-crop", "--size", "8", "--threads", "0", "--batch-size", "2",
                        "--rounds", "1", "--seconds", "0.01", "--json", file.string()}));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_GT(rows[0]["images_per_second"], 0);
  EXPECT_FALSE(rows[0].contains("copy_images_per_second")) << "decoding is no copy";

  folder.write("cats/1.png", "damaged");
  const std::vector<std::string> damaged = {"loader",
                                            "--dataset",
                                            folder.path().string(),
                                            "--size",
                                            "8",
                                            "--threads",
                                            "1",
                                            "--batch-size",
                                            "3",
                                            "--rounds",
                                            "1",
                                            "--seconds",
                                            "0.01",
                                            "--json",
                                            file.string()};
  EXPECT_EQ(bench(damaged).exit_code, 1);
  std::vector<std::string> skipping = damaged;
  skipping.insert(skipping.end(), {"--on-corrupt-image", "skip"});
  const ProgramResult skipped = bench(skipping);
  ASSERT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, ::testing::HasSubstr("warning: skipped image 0 of images of "));
  const auto times = rows_of(file)[0]["skipped_images"].get<int>();
  EXPECT_GT(times, 0);
  EXPECT_THAT(skipped.out,
              ::testing::EndsWith(str(", ", times, " times a damaged image was left out\n")));
}

TEST(BenchCommand, LoadsImagesOfAsManyPixelsAsItsOptionAllows) {
  const TemporaryDirectory folder;
  folder.write("cats/1.png", detail::encode_png(std::vector<std::uint8_t>(20 * 24 * 3, 9), 20, 24));
  const auto load = [&](const std::string& limit) {
    return bench({"loader", "--dataset", folder.path().string(), "--size", "8", "--threads", "0",
                  "--batch-size", "1", "--rounds", "1", "--seconds", "0.01", "--max-image-pixels",
                  limit});
  };
  const ProgramResult refused = load("479");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("has 480 pixels, at most 479 are allowed"));
  expect_success(load("480"));
}

TEST(BenchCommand, TimesEveryCollective) {
  const TemporaryDirectory folder;
  for (const std::string backend : {"shm", "gloo"}) {
    for (const std::string ranks : {"2", "3"}) {
      const auto file = folder / ("rows-" + backend + ranks);
      expect_success(
          bench({"comm", "--collective", "all", "--backend", backend, "--nproc-per-node", ranks,
                 "--sizes", "4,12KiB", "--repetitions", "5", "--json", file.string()}));
      std::set<std::string> collectives;
      const auto rows = rows_of(file);
      for (const auto& row : rows) {
        collectives.insert(row["collective"]);
        EXPECT_EQ(row["backend"], backend);
        EXPECT_EQ(std::to_string(row["ranks"].get<int>()), ranks);
        EXPECT_GT(row["median_us"], 0);
        EXPECT_LE(row["min_us"], row["median_us"]);
        EXPECT_LE(row["median_us"], row["max_us"]);
        EXPECT_TRUE(backend == "shm" || !row["symmetric"].get<bool>());
        EXPECT_EQ(row["hosts"], 1);
        EXPECT_GE(row["processors"], 1);
        EXPECT_LE(row["processors"], available_cpus().size());
      }
      EXPECT_EQ(collectives.size(), 10U);
      // Nine collectives in two sizes, and the barrier. With shm also on symmetric buffers.
      EXPECT_EQ(rows.size(), backend == "shm" ? 9U * 2 * 2 + 1 : 9U * 2 + 1);
    }
  }
}

TEST(BenchCommand, TimesEveryAlgorithmOnEveryType) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  for (const std::string type : {"float32", "bfloat16", "int8", "bool"}) {
    expect_success(
        bench({"comm", "--algorithm", "all", "--private", "--dtype", type, "--nproc-per-node", "3",
               "--sizes", "1KiB", "--repetitions", "5", "--json", file.string()}));
    std::set<std::string> algorithms;
    for (const auto& row : rows_of(file)) {
      algorithms.insert(row["algorithm"]);
      EXPECT_EQ(row["dtype"], type);
      EXPECT_EQ(row["bytes"], 1024);
    }
    EXPECT_EQ(algorithms, (std::set<std::string>{"native", "reduce-broadcast", "all-to-all", "ring",
                                                 "halving-doubling", "tree"}));
  }
}

TEST(BenchCommand, TimesTrainingSteps) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const ProgramResult result =
      bench({"step", "--bucket-cap-mb", "0.01,whole", "--find-unused-parameters", "--rounds", "2",
             "--steps", "2", "--batch-per-rank", "4", "--json", file.string()});
  expect_success(result);
  EXPECT_THAT(
      result.out,
      StartsWith("mnist over shm, 2 ranks x 1 thread, batch 4 each, precision 32, sgd\nstrategy"));
  EXPECT_THAT(result.out, HasSubstr("\nddp, find unused "));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 4U);
  for (const auto& row : rows) {
    EXPECT_EQ(row["strategy"], "ddp");
    EXPECT_GT(row["step_ms"], 0);
    EXPECT_GT(row["step_ms_single"], 0);
    EXPECT_TRUE(row["overhead_ms"].is_number());
    EXPECT_GE(row["waited_ms"], row["exposed_ms"]);
    EXPECT_GT(row["peak_rss_bytes"], row["proportional_bytes"]);
  }
  EXPECT_EQ(rows[0]["bucket_cap_mb"], 0.01);
  EXPECT_TRUE(rows[2]["bucket_cap_mb"].is_null());
}

TEST(BenchCommand, TimesAShardedOptimizer) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  expect_success(bench({"step", "--strategy", "ddp,zero1", "--optimizer", "adamw", "--rounds", "1",
                        "--steps", "2", "--batch-per-rank", "4", "--json", file.string()}));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["parameter_memory"], "as-is");
  EXPECT_EQ(rows[1]["strategy"], "zero1");
  EXPECT_EQ(rows[1]["parameter_memory"], "shared");
  EXPECT_EQ(rows[1]["optimizer"], "adamw");
}

TEST(BenchCommand, TrainsAloneForItsMemory) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  expect_success(bench({"step", "--alone", "--backend", "gloo", "--precision", "bf16", "--rounds",
                        "1", "--steps", "1", "--batch-per-rank", "4", "--json", file.string()}));
  const auto rows = rows_of(file);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["backend"], "gloo");
  EXPECT_EQ(rows[0]["precision"], "bf16");
  EXPECT_TRUE(rows[0]["step_ms_single"].is_null());
}

TEST(BenchCommand, PrintsATable) {
  const ProgramResult result =
      bench({"comm", "--sizes", "4KiB", "--repetitions", "5", "--symmetric"});
  expect_success(result);
  EXPECT_THAT(result.out, StartsWith("shm, 2 ranks, float32\ncollective"));
  EXPECT_THAT(result.out, HasSubstr("\nall_reduce      auto                  4 KiB  symmetric"));
  EXPECT_THAT(result.out, HasSubstr("\ncopying "));
}

// Nothing is allocated for a row that does not fit. Algorithms of Lockstep's own need more memory
// than the backend's.
TEST(BenchCommand, LeavesOutWhatDoesNotFitIntoMemory) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const ProgramResult result =
      bench({"comm", "--collective", "all_reduce,broadcast", "--algorithm", "native,ring",
             "--private", "--sizes", "1TiB", "--repetitions", "5", "--json", file.string()});
  expect_success(result);
  EXPECT_THAT(
      result.out,
      HasSubstr("\nleft out: all_reduce of 1024 GiB, for which there is no 4096 GiB of memory"
                "\nleft out: all_reduce of 1024 GiB, for which there is no 6144 GiB of memory"
                "\nleft out: broadcast of 1024 GiB, for which there is no 4096 GiB of memory"
                "\ncopying "));
  EXPECT_EQ(rows_of(file), nlohmann::json::array());
}

TEST(BenchCommand, ExplainsAnAlgorithm) {
  const TemporaryDirectory folder;
  for (const std::string algorithm :
       {"reduce-broadcast", "all-to-all", "ring", "halving-doubling", "tree"}) {
    const auto file = folder / (algorithm + ".svg");
    const ProgramResult result =
        bench({"comm", "--explain", "--algorithm", algorithm, "--nproc-per-node", "4", "--bytes",
               "16KiB", "--out", file.string()});
    expect_success(result);
    EXPECT_THAT(
        result.out,
        StartsWith(algorithm + " all-reduce of 16 KiB float32 on 4 ranks over shm\n\nstep 1  "));
    EXPECT_THAT(result.out, HasSubstr("predicted us\n   0 "));
    EXPECT_THAT(read_text(file), StartsWith("<svg "));
  }
}

// Runs two ranks under a foreign launcher. Both get the same --json, but only rank 0 writes it.
void run_under_a_launcher(const std::vector<std::string>& arguments, const std::string& port) {
  const Environment base = {{"WORLD_SIZE", "2"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", port}};
  std::vector<std::string> command = {LOCKSTEP_PROGRAM, "bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::unique_ptr<ProgramRun>> runs;
  for (const std::string rank : {"0", "1"}) {
    Environment environment = base;
    environment["RANK"] = environment["LOCAL_RANK"] = rank;
    runs.push_back(std::make_unique<ProgramRun>(command, environment));
  }
  // The second rank ends with the first or shortly after; waiting for the first must not end it.
  int status = 0;
  for (const auto& run : runs) {
    waitpid(run->pid(), &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(BenchCommand, RunsUnderALauncher) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const int port = 20000 + getpid() % 10000;
  run_under_a_launcher(
      {"comm", "--backend", "gloo", "--sizes", "64", "--repetitions", "5", "--json", file.string()},
      std::to_string(port));
  EXPECT_EQ(rows_of(file).size(), 1U);
  run_under_a_launcher({"step", "--backend", "gloo", "--rounds", "1", "--steps", "1",
                        "--batch-per-rank", "4", "--json", file.string()},
                       std::to_string(port + 1));
  EXPECT_EQ(rows_of(file)[0]["model"], "mnist");
}

}  // namespace
}  // namespace lockstep::testing_support
