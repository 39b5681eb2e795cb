// `lockstep train` as its users meet it, above all when something is wrong.
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <tests/cli/program_run.h>
#include <tests/support/dali.h>
#include <tests/support/data_bytes.h>
#include <tests/support/mnist_files.h>
#include <tests/support/http_server.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

// A small MNIST, and nothing of the user's own in sight.
class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    for (const char* split : {"train", "t10k"}) write_mnist(data, split, 64);
  }

  std::vector<std::string> command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  ProgramResult train(const std::vector<std::string>& arguments, Environment environment = {},
                      const std::function<void()>& before_exec = {}) const {
    environment.try_emplace("XDG_CACHE_HOME", (scratch / "cache").string());
    environment.try_emplace("LOCKSTEP_DATA", data.path().string());
    return run_to_end(command(arguments), environment, before_exec);
  }
  std::string in_scratch(const std::string& name) const { return (scratch / name).string(); }

  TemporaryDirectory data;
  TemporaryDirectory scratch;
};

void expect_one_error(const ProgramResult& result, int exit_code, const std::string& text,
                      const std::string& name) {
  EXPECT_EQ(result.exit_code, exit_code) << name << "\n" << result.err;
  EXPECT_EQ(result.error_lines(), 1) << name << "\n" << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << name << "\n"
                                                                       << result.err;
  EXPECT_THAT(result.err, HasSubstr(text)) << name;
  EXPECT_EQ(result.left_behind, 0) << name;
}

TEST_F(TrainCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  scratch.write("file", "not a folder");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{"nosuch"}, 2, "there is no recipe \"nosuch\"; known are: mnist, cifar10"},
      {{}, 2, "RECIPE is required"},
      {{"mnist", "--max-epoch", "1"}, 2, "did you mean '--max-epochs'"},
      {{"mnist", "--lr", "fast"}, 2, "--lr"},
      {{"mnist", "--lr", "-1"}, 2, "--lr"},
      {{"mnist", "--lr", "nan"}, 2, "--lr"},
      {{"mnist", "--momentum", "2"}, 2, "--momentum"},
      {{"mnist", "--optimizer", "lion"}, 2, "--optimizer must be one of sgd, adam, adamw"},
      {{"mnist", "--betas", "0.9", "0.99"}, 2, "--amsgrad belong to --optimizer adam and adamw"},
      {{"mnist", "--optimizer", "adam", "--nesterov"}, 2, "--nesterov belong to --optimizer sgd"},
      {{"mnist", "--optimizer", "adam", "--betas", "0.9", "1"}, 2, "beta2 must be below 1"},
      {{"mnist", "--optimizer", "adamw", "--betas", "0.9"}, 2, "--betas"},
      {{"mnist", "--gradient-clip-norm", "0"}, 2, "--gradient-clip-norm must be greater than 0"},
      {{"mnist", "--max-epochs", "0"}, 2, "--max-epochs must be from 1"},
      {{"mnist", "--max-epochs", "1000000000000000000"}, 2, "--max-epochs must be from 1"},
      {{"mnist", "--max-epochs", "99999999999999999999"}, 2, "which does not fit"},
      {{"mnist", "--max-epochs", "0x10"}, 2, "must be a whole number, got '0x10'"},
      {{"mnist", "--seed", "-1"}, 2, "must be a whole number of at least 0, got '-1'"},
      {{"mnist", "--lr", ""}, 2, "--lr: must not be empty"},
      {{"mnist", "--json", ""}, 2, "--json: must not be empty"},
      {{"mnist", "--gamma", "0.5"}, 2, "--step-epochs and --gamma belong to --schedule step"},
      {{"mnist", "--schedule", "step", "--gamma", "0"}, 2, "--gamma must be greater than 0"},
      {{"mnist", "--schedule", "step", "--step-epochs", "inf"}, 2, "--step-epochs"},
      {{"mnist", "--warmup-epochs", "-1"}, 2, "--warmup-epochs must be from 0"},
      {{"mnist", "--max-steps", "0"}, 2, "--max-steps must be at least 1"},
      {{"mnist", "--accumulate-grad-batches", "0"}, 2, "--accumulate-grad-batches must be from 1"},
      {{"mnist", "--limit-test-batches", "-1"}, 2, "--limit-test-batches must be at least 0"},
      {{"mnist", "--nproc-per-node", "0"}, 2, "--nproc-per-node"},
      {{"mnist", "--nproc-per-node", "2", "--strategy", "single"}, 2, "use --strategy ddp"},
      {{"mnist", "--strategy", "magic"},
       2,
       "--strategy must be one of single, dp, ddp, zero1, pipeline, hybrid, got 'magic'"},
      {{"mnist", "--nproc-per-node", "2", "--strategy", "dp"}, 2, "use --strategy ddp"},
      {{"mnist", "--devices", "2"}, 2, "--devices belongs to --strategy dp"},
      {{"mnist", "--dp-loss", "on-each"}, 2, "--dp-loss belongs to --strategy dp"},
      {{"mnist", "--strategy", "dp", "--devices", "0"}, 2, "--devices must be from 1"},
      {{"mnist", "--strategy", "dp", "--dp-loss", "each"},
       2,
       "--dp-loss must be one of gathered, on-each, got 'each'"},
      {{"mnist", "--strategy", "dp", "--accelerator", "cuda", "--devices", "200"},
       2,
       "--accelerator cuda needs 200 GPUs"},
      {{"mnist", "--backend", "tcp"}, 2, "--backend"},
      {{"mnist", "--accelerator", "tpu"}, 2, "--accelerator"},
      {{"mnist", "--precision", "8"}, 2, "--precision"},
      {{"cifar10", "--no-fused-kernels"}, 2, "--no-fused-kernels changes nothing for cifar10"},
      {{"mnist", "--schedule", "random"}, 2, "--schedule"},
      {{"mnist", "--loader", "gpu"}, 2, "--loader must be one of native, cuda, dali, got 'gpu'"},
      {{"mnist", "--loader", "cuda", "--accelerator", "cpu"}, 2, "the cuda engine"},
      {{"mnist", "--strategy", "pipeline", "--stages", "5"},
       2,
       "recipe mnist: the number of stages must be from 1 to 4, got 5"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "2", "--stages", "0"},
       2,
       "recipe cifar10: the number of stages must be from 1 to 8, got 0"},
      {{"mnist", "--stages", "2"}, 2, "--stages belongs to --strategy pipeline and hybrid"},
      {{"mnist", "--micro-batches", "2"}, 2, "--micro-batches belongs to --strategy pipeline"},
      {{"mnist", "--schedule", "zbv"}, 2, "--schedule zbv belongs to --strategy pipeline"},
      {{"mnist", "--schedule", "step", "--schedule", "cosine"},
       2,
       "--schedule step and --schedule cosine exclude each other"},
      {{"mnist", "--shard-optimizer"}, 2, "--shard-optimizer belongs to --strategy hybrid"},
      {{"cifar10", "--strategy", "pipeline", "--shard-optimizer"},
       2,
       "--shard-optimizer belongs to --strategy hybrid"},
      {{"cifar10", "--strategy", "pipeline", "--nproc-per-node", "3"},
       2,
       "needs 2 processes, or one with threads, but there are 3"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "3"},
       2,
       "needs a multiple of 2 processes, but there are 3"},
      {{"cifar10", "--strategy", "pipeline", "--schedule", "zbv", "--stages", "3"},
       2,
       "the schedule zbv has 2 stages on each worker, got 3"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "4", "--batch-size", "4"},
       2,
       "gives each pipeline 2 images, fewer than --micro-batches 4"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "4", "--batch-size", "9"},
       2,
       "cannot be divided by 2 pipelines; use 8 or 10"},
      {{"resnet50-split", "--strategy", "pipeline", "--stages", "17"},
       2,
       "recipe resnet50-split: the number of stages must be from 1 to 16, got 17"},
      {{"resnet50-split", "--data", in_scratch("")}, 2, "has no folder 'train'"},
      {{"mnist", "--on-corrupt-image", "ask"}, 2, "--on-corrupt-image must be one of stop, skip"},
      {{"mnist", "--mix", "all"}, 2, "--mix must be one of none, mixup, cutmix, random"},
      {{"mnist", "--timeout", "0"}, 2, "--timeout"},
      {{"mnist", "--workers", "-1"}, 2, "--workers"},
      {{"mnist", "--batch-size", "0"}, 2, "--batch-size must be from 1"},
      {{"mnist", "--nproc-per-node", "4", "--batch-size", "3"},
       2,
       "--batch-size 3 is smaller than the number of ranks, 4"},
      {{"mnist", "--nproc-per-node", "2", "--batch-size", "5"},
       2,
       "--batch-size 5 cannot be divided by 2 ranks; use 4 or 6"},
      {{"mnist", "--out", "/proc/nothing/here"}, 2, "cannot create the folder"},
      {{"mnist", "--out", in_scratch("file") + "/run"}, 2, "cannot create the folder"},
      {{"mnist", "--json", in_scratch("")}, 2, "it is a folder"},
      {{"mnist", "--json", "/proc/nothing/report.json"}, 2, "cannot create the folder"},
      {{"mnist", "--resume"}, 2, "--resume needs --out"},
      {{"mnist", "--resume", "--overwrite", "--out", in_scratch("empty")}, 2, "exclude each other"},
      {{"mnist", "--resume", "--out", in_scratch("empty")}, 1, "there is no checkpoint"},
      {{"mnist", "--data", "/nowhere"}, 2, "/nowhere"},
      {{"mnist", "--data", in_scratch("")}, 1, "ubyte"},
      {{"mnist", "--nproc-per-node", "2", "--backend", "nccl", "--accelerator", "cpu"}, 2, "nccl"},
  };
  for (const Case& c : cases) {
    std::string name = "train";
    for (const auto& word : c.arguments) name += " " + word;
    expect_one_error(train(c.arguments), c.exit_code, c.text, name);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "empty")) << "created for a run that cannot be";
}

TEST_F(TrainCommand, SaysInOneLineWhatIsWrongWithItsEnvironment) {
  struct Case {
    Environment environment;
    std::vector<std::string> arguments;
    const char* text;
  };
  const Environment one_of_two = {{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"LOCAL_RANK", "0"},
                                  {"LOCAL_WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", "29511"}};
  const Case cases[] = {
      {one_of_two, {"mnist", "--nproc-per-node", "3"}, "--nproc-per-node 3 contradicts"},
      {{{"RANK", "5"}, {"WORLD_SIZE", "2"}}, {"mnist"}, "RANK"},
      {{{"RANK", "0"}}, {"mnist"}, "WORLD_SIZE"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "two"}}, {"mnist"}, "WORLD_SIZE"},
  };
  for (const Case& c : cases) {
    expect_one_error(train(c.arguments, c.environment), 2, c.text, c.text);
  }
}

TEST_F(TrainCommand, NamesADamagedDataFile) {
  data.write("train-images-idx3-ubyte", idx_images(64, 28, 28).substr(0, 1000));
  expect_one_error(train({"mnist", "--nproc-per-node", "2"}), 1, "train-images-idx3-ubyte",
                   "truncated");
  data.write("train-images-idx3-ubyte", idx_labels(64));
  expect_one_error(train({"mnist", "--nproc-per-node", "2"}), 1, "train-images-idx3-ubyte",
                   "mislabelled");
  // The test images are read by the ranks: the launcher tells what rank 0 met.
  data.write("train-images-idx3-ubyte", idx_images(64, 28, 28));
  data.write("t10k-labels-idx1-ubyte", idx_labels(63));
  const auto result =
      train({"mnist", "--nproc-per-node", "2", "--max-steps", "1", "--batch-size", "4"});
  expect_one_error(result, 1, "t10k-labels-idx1-ubyte", "counts differ");
}

TEST_F(TrainCommand, NamesADamagedArchive) {
  const std::string whole = gzip(idx_images(64, 28, 28));
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 0x10;
  const std::pair<const char*, std::string> cases[] = {
      {"cut short", whole.substr(0, whole.size() / 2)},
      {"without its end", whole.substr(0, whole.size() - 1)},
      {"a bit flipped", flipped},
      {"empty", ""}};
  for (const char* file : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"}) {
    const std::string plain = read_text(data / file);
    std::filesystem::remove(data / file);
    for (const auto& [name, content] : cases) {
      data.write(std::string(file) + ".gz", content);
      expect_one_error(train({"mnist", "--max-steps", "1"}), 1, file, std::string(file) + name);
    }
    std::filesystem::remove(data / (std::string(file) + ".gz"));
    data.write(file, plain);
  }
}

TEST_F(TrainCommand, CallsAFileDownloadedOnlyWhenItIsRight) {
  const HttpServer server({{"/cifar10/cifar-10-binary.tar.gz", pattern(100'000)}});
  const auto result =
      train({"cifar10"}, {{"LOCKSTEP_DATA", ""}, {"LOCKSTEP_MIRROR", server.url()}});
  expect_one_error(result, 1, "cifar-10-binary.tar.gz", "wrong checksum");
  EXPECT_EQ(server.requests(), 1);
}

TEST_F(TrainCommand, SaysThatItsOutputIsLost) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const auto fill = [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); };
  const std::vector<std::string> one = {"mnist", "--max-steps", "1"};
  const std::vector<std::string> two = {"mnist", "--max-steps", "1", "--nproc-per-node", "2"};
  const char* text = "cannot write to standard output: No space left on device";
  expect_one_error(train(one, {}, fill), 1, text, "one process");
  expect_one_error(train(two, {}, fill), 1, text, "two ranks");
  expect_one_error(train({"--help"}, {}, fill), 1, "cannot write to standard output", "help");
  expect_one_error(run_to_end({LOCKSTEP_PROGRAM, "doctor"}, {}, fill), 1, text, "doctor");
  expect_one_error(train({"mnist", "--max-steps", "1", "--json", "/dev/full"}), 1, "/dev/full",
                   "report");
}

TEST_F(TrainCommand, TrainsWithoutStandardStreams) {
  const auto close_all = [] {
    for (int fd = 0; fd < 3; ++fd) close(fd);
  };
  const auto result = train({"mnist", "--max-steps", "1", "--nproc-per-node", "2", "--batch-size",
                             "010", "--json", in_scratch("r.json")},
                            {}, close_all);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["global_batch"], 10)
      << "numbers are decimal";
}

TEST_F(TrainCommand, KeepsItsMemoryFromEpochToEpoch) {
  for (const char* split : {"train", "t10k"}) {
    write_mnist(data, split, 640);
  }
  const auto file = in_scratch("memory.json");
  const auto result = train({"mnist", "--nproc-per-node", "2", "--max-epochs", "20", "--batch-size",
                             "64", "--workers", "4", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto epochs = nlohmann::json::parse(read_text(file))["epochs"];
  ASSERT_EQ(epochs.size(), 20U);
  EXPECT_GT(epochs[1]["rss_bytes"], 10'000'000);
  EXPECT_LT(epochs[19]["rss_bytes"].get<double>(), 1.01 * epochs[1]["rss_bytes"].get<double>());
}

// The batches are the native engine's to rounding (tests/data/dali_engine_test.cpp), so the steps are.
TEST_F(TrainCommand, TrainsWithDali) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const auto loss_of = [&](const std::string& loader) {
    const std::string file = in_scratch(loader + ".json");
    const auto result = train({"mnist", "--nproc-per-node", "2", "--loader", loader, "--max-steps",
                               "3", "--batch-size", "8", "--json", file});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (result.exit_code != 0) return -1.0;
    const auto report = nlohmann::json::parse(read_text(file));
    EXPECT_EQ(report["loader"], loader);
    return report["test"]["loss"].get<double>();
  };
  EXPECT_NEAR(loss_of("dali"), loss_of("native"), 1e-4);
}

TEST_F(TrainCommand, TrainsWithLibTorchsOperationsAlone) {
  const auto report_of = [&](std::vector<std::string> more) {
    const std::string file = in_scratch("report.json");
    std::vector<std::string> arguments = {"mnist", "--max-steps", "3", "--batch-size", "8", "--json", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = train(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(read_text(file));
  };
  const auto fused = report_of({});
  const auto plain = report_of({"--no-fused-kernels"});
  EXPECT_TRUE(fused["fused_kernels"].get<bool>());
  EXPECT_FALSE(plain["fused_kernels"].get<bool>());
  // The same network with the same random numbers.
  EXPECT_NEAR(plain["test"]["loss"].get<double>(), fused["test"]["loss"].get<double>(), 1e-4);
}

TEST_F(TrainCommand, AccumulatesGradients) {
  const std::string file = in_scratch("accumulated.json");
  const auto result = train({"mnist", "--accumulate-grad-batches", "3", "--batch-size", "8",
                             "--max-epochs", "1", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("global batch 8 x 3"));
  EXPECT_EQ(nlohmann::json::parse(read_text(file))["accumulate_grad_batches"], 3);
}

TEST_F(TrainCommand, TrainsReplicasInOneProcess) {
  const std::string file = in_scratch("dp.json");
  const std::vector<std::string> arguments = {
      "mnist",       "--strategy", "dp",     "--devices", "2",            "--dp-loss", "on-each",
      "--max-steps", "3",          "--json", file,        "--batch-size", "9"};
  ProgramResult result = train(arguments, {{"CUDA_VISIBLE_DEVICES", ""}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "note: --strategy dp computes on the CPU: this process sees no GPU\n");
  EXPECT_THAT(result.out, HasSubstr("mnist: dp with 2 replicas, 1 process"));
  const auto report = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(report["strategy"], "dp");
  EXPECT_EQ(report["devices"], 2);
  EXPECT_EQ(report["dp_loss"], "on-each");
  EXPECT_GT(report["epochs"][0]["phases"]["forward"], 0.0);
  EXPECT_GT(report["epochs"][0]["phases"]["backward"], 0.0);

  std::vector<std::string> on_cpu = arguments;
  on_cpu.insert(on_cpu.end(), {"--accelerator", "cpu"});
  result = train(on_cpu);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

TEST_F(TrainCommand, TrainsAPipelineOfThreads) {
  const std::string file = in_scratch("pipeline.json");
  const auto result =
      train({"resnet50-split", "--strategy", "pipeline", "--micro-batches", "2", "--schedule",
             "zb-h1", "--schedule", "constant", "--batch-size", "4", "--max-steps", "1",
             "--limit-test-batches", "1", "--accelerator", "cpu", "--out", in_scratch("split"),
             "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("resnet50-split: pipeline of 2 stages (zb-h1, 2 "
                                    "micro-batches), 1 process"));
  const auto report = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(report["strategy"], "pipeline");
  EXPECT_EQ(report["stages"], 2);
  EXPECT_EQ(report["micro_batches"], 2);
  EXPECT_EQ(report["schedule"], "zb-h1");
  // The unsplit names.
  const std::string checkpoint = read_text(scratch / "split" / "checkpoint.safetensors");
  for (const char* name : {R"("layer2.3.bn3.running_var")", R"("layer3.0.downsample.0.weight")",
                           R"("optimizer.momentum_buffer.fc.weight")"}) {
    EXPECT_NE(checkpoint.find(name), std::string::npos) << name;
  }
}

TEST_F(TrainCommand, ToldOfAnotherMixWhenItGoesOn) {
  const std::vector<std::string> first = {"mnist", "--max-steps", "1", "--batch-size", "4",
                                          "--mix", "mixup", "--out", in_scratch("mixed")};
  ASSERT_EQ(train(first).exit_code, 0);
  std::vector<std::string> second = first;
  second[2] = "2";
  second.push_back("--resume");
  EXPECT_THAT(train(second).err, ::testing::Not(::testing::HasSubstr("does not repeat")));
  second[2] = "3";
  second[6] = "cutmix";
  EXPECT_THAT(train(second).err, ::testing::HasSubstr("mix MixUp(alpha=1) (now CutMix(alpha=1))"));
  second[2] = "4";
  second.push_back("--no-fused-kernels");  // equal to the fused ones only up to rounding
  EXPECT_THAT(train(second).err, ::testing::HasSubstr("fused_kernels yes (now no)"));
}

TEST_F(TrainCommand, TrainsWithAnotherOptimizerInFloat16) {
  const std::vector<std::string> arguments = {"mnist",
                                              "--optimizer",
                                              "adamw",
                                              "--betas",
                                              "0.8",
                                              "0.99",
                                              "--eps",
                                              "1e-6",
                                              "--amsgrad",
                                              "--precision",
                                              "16",
                                              "--gradient-clip-norm",
                                              "0.5",
                                              "--max-steps",
                                              "2",
                                              "--batch-size",
                                              "8",
                                              "--out",
                                              in_scratch("adam"),
                                              "--json",
                                              in_scratch("r.json")};
  const ProgramResult result = train(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("float16 is slower than float32 on a CPU"));
  EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["precision"], "16");
  // The header of the checkpoint names what it was trained with.
  const std::string checkpoint = read_text(scratch / "adam" / "checkpoint.safetensors");
  for (const char* text : {R"("optimizer":"adamw")", R"("betas":"0.8 0.99")", R"("eps":"1e-06")",
                           R"("amsgrad":"true")", R"("gradient_clip_norm":"0.5")",
                           "optimizer.max_exp_avg_sq.conv1.weight", "optimizer.step.fc2.bias",
                           "optimizer.grad_scaler.scale"}) {
    EXPECT_NE(checkpoint.find(text), std::string::npos) << text;
  }
}

TEST_F(TrainCommand, TrainsReportsAndResumes) {
  const std::vector<std::string> common = {"mnist",
                                           "--nproc-per-node",
                                           "2",
                                           "--threads",
                                           "1",
                                           "--batch-size",
                                           "16",
                                           "--schedule",
                                           "constant",
                                           "--out",
                                           in_scratch("run"),
                                           "--json",
                                           in_scratch("r.json")};
  auto first = common;
  first.insert(first.end(), {"--max-epochs", "1"});
  ProgramResult result = train(first);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.left_behind, 0);
  const auto report = nlohmann::json::parse(read_text(scratch / "r.json"));
  EXPECT_EQ(report["world_size"], 2);
  EXPECT_EQ(report["strategy"], "ddp");
  EXPECT_EQ(report["backend"], "shm");
  EXPECT_EQ(report["global_batch"], 16);
  EXPECT_EQ(report["epochs"].size(), 1U);
  EXPECT_GT(report["seconds_to_first_step"], 0.0);

  auto second = common;
  second.insert(second.end(), {"--max-epochs", "3", "--resume"});
  result = train(second);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto resumed = nlohmann::json::parse(read_text(scratch / "r.json"));
  ASSERT_EQ(resumed["epochs"].size(), 2U);
  EXPECT_EQ(resumed["epochs"][0]["epoch"], 2);

  auto sharded = common;
  sharded.insert(sharded.end(), {"--max-epochs", "4", "--resume", "--strategy", "zero1"});
  result = train(sharded);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["strategy"], "zero1");

  auto without_momentum = second;
  without_momentum.insert(without_momentum.end(), {"--momentum", "0"});
  without_momentum[without_momentum.size() - 4] = "5";  // epochs
  expect_one_error(train(without_momentum), 1, "whose optimizer remembers momentum_buffer",
                   "momentum");

  auto foreign = common;
  foreign[0] = "cifar10";
  foreign.insert(foreign.end(), {"--resume"});
  EXPECT_EQ(train(foreign).exit_code, 1);
}

TEST_F(TrainCommand, JoinsTheRanksOfAnotherLauncher) {
  // A port that was free a moment ago.
  const std::string port = std::to_string(20000 + getpid() % 20000);
  std::vector<std::unique_ptr<ProgramRun>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<ProgramRun>(
        command({"mnist", "--max-steps", "2", "--batch-size", "8", "--threads", "1", "--timeout",
                 "30", "--out", in_scratch("run" + rank), "--json",
                 in_scratch("r" + rank + ".json")}),
        Environment{{"RANK", rank},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_RANK", rank},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", port},
                    {"LOCKSTEP_DATA", data.path().string()}}));
  }
  // Both have ended before the first is asked: what then still runs is left behind.
  siginfo_t ended{};
  for (const auto& rank : ranks) waitid(P_PID, rank->pid(), &ended, WEXITED | WNOWAIT);
  const ProgramResult zero = ranks[0]->wait();
  const ProgramResult one = ranks[1]->wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(zero.exit_code, 0) << zero.err;
  EXPECT_EQ(zero.left_behind, 0);
  EXPECT_THAT(zero.out, HasSubstr("2 processes"));
  EXPECT_EQ(one.out, "") << "only rank 0 writes";
  EXPECT_TRUE(std::filesystem::exists(scratch / "run0" / "checkpoint.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run1"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "r0.json"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "r1.json"));
}

TEST_F(TrainCommand, TrainsOnGeneratedDigitsWithoutDataAndNetwork) {
  // Nobody listens on port 1.
  const Environment offline = {{"LOCKSTEP_DATA", ""}, {"LOCKSTEP_MIRROR", "http://127.0.0.1:1"}};
  const ProgramResult result = train({"mnist", "--max-steps", "2"}, offline);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("training on generated digits instead"));
  EXPECT_THAT(result.out, HasSubstr("generated digits"));
  expect_one_error(train({"cifar10"}, offline), 1, "cifar", "cifar10 offline");
}

TEST_F(TrainCommand, SaysThatTheDiskIsFull) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: mounts a tiny file system";
  std::filesystem::create_directory(scratch / "disk");
  const std::string disk = in_scratch("disk");
  // The mount exists in the program's own namespace only.
  const auto mount_disk = [&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(99);
    }
  };
  const ProgramResult result = train(
      {"mnist", "--nproc-per-node", "2", "--batch-size", "16", "--max-epochs", "1", "--out", disk},
      {}, mount_disk);
  if (result.exit_code == 99) GTEST_SKIP() << "cannot mount a file system here";
  expect_one_error(result, 1, "but its file system has 0.06 MB free", "full disk");
  EXPECT_EQ(result.out.find("epoch"), std::string::npos) << "said before the training";
}

// A loop that resumes until the exit code is 0 comes to its end.
TEST_F(TrainCommand, ResumedWhenItIsCompleteEndsWell) {
  const std::vector<std::string> first = {"mnist", "--nproc-per-node", "2", "--threads", "1",
                                          "--batch-size", "16", "--max-epochs", "1", "--out",
                                          in_scratch("run"), "--json", in_scratch("first.json")};
  ASSERT_EQ(train(first).exit_code, 0);
  const std::string checkpoint = read_text(scratch / "run/checkpoint.safetensors");
  std::vector<std::string> again = first;
  again.back() = in_scratch("again.json");
  again.push_back("--resume");
  const ProgramResult result = train(again);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("the run is complete"));
  const auto before = nlohmann::json::parse(read_text(scratch / "first.json"));
  const auto after = nlohmann::json::parse(read_text(scratch / "again.json"));
  EXPECT_EQ(before["already_complete"], false);
  EXPECT_EQ(after["already_complete"], true);
  EXPECT_EQ(after["epochs"], nlohmann::json::array());
  EXPECT_EQ(after["test"], before["test"]);
  EXPECT_EQ(read_text(scratch / "run/checkpoint.safetensors"), checkpoint);
}

TEST_F(TrainCommand, OverwritesACheckpointOnlyWhenToldTo) {
  std::vector<std::string> words = {"mnist", "--max-steps", "1", "--batch-size", "8", "--seed", "1",
                                    "--out", in_scratch("run")};
  ASSERT_EQ(train(words).exit_code, 0);
  const std::string first = read_text(scratch / "run/checkpoint.safetensors");
  words[6] = "2";
  expect_one_error(train(words), 2, "already holds a checkpoint; give --resume to go on with it, --overwrite",
                   "a second run");
  EXPECT_EQ(read_text(scratch / "run/checkpoint.safetensors"), first);
  words.push_back("--overwrite");
  const ProgramResult result = train(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(read_text(scratch / "run/checkpoint.safetensors"), first);
}

TEST_F(TrainCommand, LeavesTheFolderOfALivingRunAlone) {
  const std::vector<std::string> living = {"mnist", "--nproc-per-node", "2", "--batch-size", "4", "--max-epochs",
                                           "1000000", "--out", in_scratch("run")};
  ProgramRun run(command(living), {{"LOCKSTEP_DATA", data.path().string()}});
  while (!std::filesystem::exists(scratch / "run" / "checkpoint.safetensors")) {
    ASSERT_EQ(waitid(P_PID, run.pid(), nullptr, WEXITED | WNOHANG | WNOWAIT), 0);
    usleep(1000);
  }
  const std::vector<pid_t> children = children_of(run.pid());
  ASSERT_EQ(children.size(), 3U);  // two ranks, and the process that merges their output
  const std::string holder = str("run is in use by process ", run.pid(), " on ");
  for (const char* how : {"--resume", "--overwrite"}) {
    std::vector<std::string> second = {"mnist", "--max-steps", "1", "--out", in_scratch("run"), how};
    // Not by run_to_end(), which ends what else runs.
    ProgramRun refused(command(second), {{"LOCKSTEP_DATA", data.path().string()}});
    siginfo_t ended{};
    waitid(P_PID, refused.pid(), &ended, WEXITED | WNOWAIT);
    EXPECT_EQ(ended.si_status, 2) << how;
    EXPECT_THAT(refused.error_so_far(), HasSubstr(holder)) << how;
    waitpid(refused.pid(), nullptr, 0);
  }
  // The ranks of a launcher that is killed hold the folder for as long as they live. The launcher's
  // children are then children of this process.
  kill(run.pid(), SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 128 + SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  const ProgramResult next = train({"mnist", "--max-steps", "1", "--out", in_scratch("run"), "--overwrite"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
}

TEST_F(TrainCommand, LeavesNoProcessWhenItIsKilled) {
  const auto arguments = command({"mnist", "--nproc-per-node", "2", "--batch-size", "4",
                                  "--max-epochs", "1000000", "--out", in_scratch("run")});
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run(arguments, {{"LOCKSTEP_DATA", data.path().string()}});
    // It trains once it has written a checkpoint.
    while (!std::filesystem::exists(scratch / "run" / "checkpoint.safetensors")) {
      ASSERT_EQ(waitid(P_PID, run.pid(), nullptr, WEXITED | WNOHANG | WNOWAIT), 0);
      usleep(1000);
    }
    kill(run.pid(), signal);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_EQ(result.left_behind, 0) << "signal " << signal;
  }
}

// What the program writes to a terminal, until it ends.
class PseudoTerminal {
 public:
  PseudoTerminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    name_ = ptsname(master_);
    slave_ = open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  ~PseudoTerminal() { close(master_); }
  bool available() const { return slave_ >= 0; }
  void take_output() const {
    dup2(slave_, STDOUT_FILENO);
    dup2(slave_, STDERR_FILENO);
  }
  // Reads until nobody holds the other end.
  std::string read_all() {
    close(slave_);
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(master_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(size));
    }
    return text;
  }

 private:
  int master_;
  int slave_ = -1;
  std::string name_;
};

TEST_F(TrainCommand, ClearsTheBarOfADeadRankBeforeTheError) {
  PseudoTerminal terminal;
  if (!terminal.available()) GTEST_SKIP() << "no pseudo-terminals here";
  ProgramRun run(command({"mnist", "--nproc-per-node", "2", "--batch-size", "4", "--max-epochs",
                          "1000000", "--out", in_scratch("run")}),
                 {{"LOCKSTEP_DATA", data.path().string()}, {"TERM", "xterm"}},
                 [&] { terminal.take_output(); });
  std::string seen;
  std::thread reader([&] { seen = terminal.read_all(); });
  while (!std::filesystem::exists(scratch / "run" / "checkpoint.safetensors")) usleep(1000);
  for (const pid_t rank : children_of(run.pid())) kill(rank, SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 1);
  reader.join();
  EXPECT_THAT(seen, HasSubstr("\r\x1b[Kerror: rank"));
}

}  // namespace
}  // namespace lockstep::testing_support
