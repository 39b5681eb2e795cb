// Errors and exit codes of `lockstep train` as its users see them.
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <tests/cli/forked_program.h>
#include <tests/cli/train_command.h>
#include <tests/support/data_bytes.h>
#include <tests/support/http_server.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(TrainCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  scratch.write("file", "not a folder");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{"nosuch"}, 2, "recipe must be one of mnist, cifar10"},
      {{}, 2, "RECIPE is required"},
      {{"mnist", "--max-epoch", "1"}, 2, "did you mean '--max-epochs'"},
      {{"mnist", "--lr", "fast"}, 2, "--lr"},
      {{"mnist", "--lr", "-1"}, 2, "--lr"},
      {{"mnist", "--lr", "nan"}, 2, "--lr"},
      {{"mnist", "--on-nan", "ask"}, 2, "--on-nan must be one of warn, stop, skip, got 'ask'"},
      {{"mnist", "--momentum", "2"}, 2, "--momentum"},
      {{"mnist", "--optimizer", "lion"}, 2, "--optimizer must be one of sgd, adam, adamw"},
      {{"mnist", "--betas", "0.9", "0.99"}, 2, "--amsgrad belong to --optimizer adam and adamw"},
      {{"mnist", "--optimizer", "adam", "--nesterov"}, 2, "--nesterov belong to --optimizer sgd"},
      {{"mnist", "--optimizer", "adam", "--betas", "0.9", "1"}, 2, "beta2 must be below 1"},
      {{"mnist", "--optimizer", "adamw", "--betas", "0.9"}, 2, "--betas"},
      {{"mnist", "--optimizer", "adamw", "--betas", "0.9", "0.99", "--betas", "0.8"}, 2, "--betas"},
      {{"mnist", "--gradient-clip-norm", "0"}, 2, "--gradient-clip-norm must be greater than 0"},
      {{"mnist", "--max-epochs", "0"}, 2, "--max-epochs must be from 1"},
      {{"mnist", "--max-epochs", "1000000000000000000"}, 2, "--max-epochs must be from 1"},
      {{"mnist", "--max-epochs", "99999999999999999999"}, 2, "which does not fit"},
      {{"mnist", "--max-epochs", "0x10"}, 2, "must be a whole number, got '0x10'"},
      {{"mnist", "--seed", "-1"}, 2, "must be a whole number of at least 0, got '-1'"},
      {{"mnist", "--lr", ""}, 2, "--lr: must not be empty"},
      {{"mnist", "--json", ""}, 2, "--json: must not be empty"},
      {{"mnist", "--gamma", "0.5"},
       2,
       "--gamma belongs to --schedule step, multi-step and plateau"},
      {{"mnist", "--step-epochs", "2"}, 2, "--step-epochs belongs to --schedule step"},
      {{"mnist", "--schedule", "multi-step"}, 2, "--schedule multi-step needs --milestones"},
      {{"mnist", "--schedule", "multi-step", "--milestones", "5,3"},
       2,
       "--milestones: expected ascending numbers of epochs, separated by commas, such as 30,60; "
       "got '5,3'"},
      {{"mnist", "--div-factor", "5"}, 2, "--final-div-factor belong to --schedule one-cycle"},
      {{"mnist", "--plateau", "loss:3"}, 2, "--plateau belongs to --schedule plateau"},
      {{"mnist", "--schedule", "plateau", "--plateau", "accuracy:3"},
       2,
       "--plateau accuracy:3 must say whether larger or smaller is better: end it with :max or"},
      {{"mnist", "--early-stopping", "loss"}, 2, "--early-stopping must be METRIC:PATIENCE"},
      {{"mnist", "--early-stopping", "loss:0"}, 2, "the patience of --early-stopping must be at"},
      {{"mnist", "--every-n-train-steps", "5"}, 2, "need --out DIR, where checkpoints are kept"},
      {{"mnist", "--out", in_scratch("empty"), "--every-n-train-steps", "0"},
       2,
       "--every-n-train-steps must be at least 1"},
      {{"mnist", "--out", in_scratch("empty"), "--keep-checkpoints", "0"},
       2,
       "--keep-checkpoints must be from 1"},
      {{"mnist", "--out", in_scratch("empty"), "--save-top-k", "loss"},
       2,
       "--save-top-k must be METRIC:K or METRIC:K:GOAL"},
      {{"mnist", "--out", in_scratch("empty"), "--save-top-k", "accuracy:2"},
       2,
       "accuracy:2 must say whether larger or smaller is better"},
      {{"mnist", "--max-time", "1:99x"}, 2, "--max-time must be seconds, MM:SS, HH:MM:SS or"},
      {{"mnist", "--min-epochs", "11"}, 2, "--min-epochs must be from 0 to 10, got 11"},
      {{"mnist", "--limit-train-batches", "0"}, 2, "--limit-train-batches must be at least 1"},
      {{"mnist", "--limit-train-batches", "0.1"},
       2,
       "--limit-train-batches: must be a number of batches, not a share of them, got '0.1'"},
      {{"mnist", "--val-check-interval", "0.25"}, 2, "not a share of them, got '0.25'"},
      {{"mnist", "--limit-val-batches", "x"}, 2, "must be a whole number, got 'x'"},
      {{"mnist", "--val-check-interval", "0"}, 2, "--val-check-interval must be at least 1"},
      {{"mnist", "--ema-decay", "2"}, 2, "--ema-decay must be from 0 to 1, got 2"},
      {{"mnist", "--gradient-clip-algorithm", "value"}, 2, "belongs to --gradient-clip-val"},
      {{"mnist", "--gradient-clip-val", "1", "--gradient-clip-norm", "1"}, 2, "cannot be combined"},
      {{"mnist", "--fast-dev-run", "2", "--resume", "--out", in_scratch("empty")},
       2,
       "--resume cannot be combined with --fast-dev-run"},
      {{"mnist", "--strategy", "pipeline", "--nproc-per-node", "2", "--ema-decay", "0.9"},
       2,
       "--ema-decay averages the whole model on each rank"},
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
      {{"mnist", "--devices", "2"},
       2,
       "--devices belongs to --strategy dp; the number of processes is --nproc-per-node"},
      {{"mnist", "--strategy", "fsdp"}, 2, "did you mean 'zero1'?"},
      {{"mnist", "--gpus", "2"}, 2, "did you mean '--nproc-per-node'?"},
      {{"mnist", "--patience", "2"}, 2, "did you mean '--early-stopping'?"},
      {{"mnist", "--ckpt_path", "run2"}, 2, "did you mean '--resume'?"},
      {{"mnist", "--resume", "run2"},
       2,
       "'run2' of lockstep train; --resume takes no folder: give --out run2 --resume"},
      {{"mnist", "--resume=run2"}, 2, "the folder of the run is the value of --out"},
      {{"mnist", "--device-weights", "3,1"}, 2, "--device-weights belongs to --strategy dp"},
      {{"mnist", "--strategy", "dp", "--devices", "3", "--device-weights", "3,1"},
       2,
       "--device-weights 3,1 must have a number for each device, but --devices is 3"},
      {{"mnist", "--dp-loss", "on-each"}, 2, "--dp-loss belongs to --strategy dp"},
      {{"mnist", "--strategy", "dp", "--devices", "0"}, 2, "--devices must be from 1"},
      {{"mnist", "--strategy", "dp", "--dp-loss", "each"},
       2,
       "--dp-loss must be one of gathered, on-each, got 'each'"},
      {{"mnist", "--strategy", "dp", "--accelerator", "cuda", "--devices", "200"},
       2,
       "--accelerator cuda needs 200 GPUs"},
      {{"mnist", "--backend", "tcp"}, 2, "--backend"},
      {{"mnist", "--accelerator", "tpu"},
       2,
       "--accelerator must be one of auto, cpu, cuda, got 'tpu'\n"},
      {{"mnist", "--accelerator", "gpu"}, 2, "train: write --accelerator cuda instead of gpu\n"},
      {{"mnist", "--precision", "8"}, 2, "--precision"},
      {{"cifar10", "--no-fused-kernels"}, 2, "--no-fused-kernels has no effect on cifar10"},
      {{"mnist", "--schedule", "random"}, 2, "--schedule"},
      {{"mnist", "--loader", "gpu"}, 2, "--loader must be one of native, cuda, dali, got 'gpu'"},
      {{"mnist", "--loader", "cuda", "--accelerator", "cpu"}, 2, "set --loader to native"},
      {{"mnist", "--strategy", "pipeline", "--stages", "5"},
       2,
       "recipe mnist: the number of stages must be from 1 to 4, got 5"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "2", "--stages", "0"},
       2,
       "recipe cifar10: the number of stages must be from 1 to 8, got 0"},
      {{"mnist", "--stages", "2"}, 2, "--stages belongs to --strategy pipeline and hybrid"},
      {{"mnist", "--micro-batches", "2"}, 2, "--micro-batches belongs to --strategy pipeline"},
      {{"mnist", "--recompute"}, 2, "--recompute belongs to --strategy pipeline and hybrid"},
      {{"mnist", "--strategy", "dp", "--recompute"},
       2,
       "--recompute belongs to --strategy pipeline"},
      {{"mnist", "--schedule", "zbv"}, 2, "--schedule zbv belongs to --strategy pipeline"},
      {{"mnist", "--schedule", "step", "--schedule", "multi-step"},
       2,
       "--schedule multi-step needs --milestones"},
      {{"mnist", "--micro-batches", "1", "--micro-batches", "2"},
       2,
       "--micro-batches belongs to --strategy pipeline"},
      {{"mnist", "--logger", "csv", "--logger", "excel", "--out", in_scratch("twice")},
       2,
       "got 'excel'"},
      {{"mnist", "--schedule", "multi-step", "--milestones", "5", "--milestones", "3"},
       2,
       "got '5,3'"},
      {{"mnist", "--strategy", "dp", "--devices", "1", "--device-weights", "3", "--device-weights",
        "1"},
       2,
       "--device-weights 3,1 must have a number for each device"},
      {{"mnist", "--sync-batchnorm"}, 2, "--sync-batchnorm belongs to --strategy ddp and zero1"},
      {{"mnist", "--find-unused-parameters"},
       2,
       "--find-unused-parameters belongs to --strategy ddp, zero1 and hybrid"},
      {{"mnist", "--strategy", "pipeline", "--find-unused-parameters"},
       2,
       "--find-unused-parameters belongs to --strategy ddp, zero1 and hybrid"},
      {{"mnist", "--bucket-cap-mb", "1"}, 2, "--bucket-cap-mb belongs to --strategy ddp and zero1"},
      {{"mnist", "--strategy", "ddp", "--bucket-cap-mb", "0"}, 2, "--bucket-cap-mb must be"},
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
       "gives each pipeline 2 samples, fewer than --micro-batches 4"},
      {{"cifar10", "--strategy", "hybrid", "--nproc-per-node", "4", "--batch-size", "9"},
       2,
       "cannot be divided by 2 pipelines; use 8 or 10"},
      {{"resnet50-split", "--strategy", "pipeline", "--stages", "17"},
       2,
       "recipe resnet50-split: the number of stages must be from 1 to 16, got 17"},
      {{"resnet50-split", "--data", in_scratch("")}, 2, "has no folder 'train'"},
      {{"mnist", "--on-corrupt-image", "ask"}, 2, "--on-corrupt-image must be one of stop, skip"},
      {{"mnist", "--max-image-pixels", "0"}, 2, "--max-image-pixels must be from 1"},
      {{"mnist", "--max-image-pixels", "1e6"}, 2, "must be a whole number, got '1e6'"},
      {{"mnist", "--max-image-pixels", "100"},
       2,
       "--max-image-pixels has no effect on mnist, which reads no folder of images"},
      {{"cifar10", "--data", in_scratch(""), "--max-image-pixels", "100"},
       2,
       "--max-image-pixels has no effect on cifar10"},
      {{"resnet50-split", "--max-image-pixels", "100"},
       2,
       "--max-image-pixels has no effect on resnet50-split without --data DIR"},
      {{"resnet50-split", "--decoding", "fast"}, 2, "--decoding must be one of exact, scaled"},
      {{"mnist", "--decoding", "scaled"},
       2,
       "--decoding has no effect on mnist, which reads no folder of images"},
      {{"resnet50-split", "--decoding", "scaled"},
       2,
       "--decoding has no effect on resnet50-split without --data DIR"},
      {{"resnet50-split", "--data", in_scratch(""), "--decoding", "scaled", "--loader", "dali"},
       2,
       "train: --decoding scaled needs --loader native, got dali"},
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
      {{"mnist", "--resume", "--overwrite", "--out", in_scratch("empty")}, 2, "cannot be combined"},
      {{"mnist", "--resume", "--out", in_scratch("empty")},
       1,
       "to resume from; to start a new run, remove --resume or set it to auto"},
      {{"--resume=always", "mnist", "--out", in_scratch("empty")},
       2,
       "--resume takes no value or the value auto, got 'always'"},
      {{"mnist", "--resume", "always", "--out", in_scratch("empty")},
       2,
       "unexpected argument 'always' of lockstep train"},
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
  // The ranks, not the launcher, read the test images. The launcher reports rank 0's error.
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
  expect_one_error(run_forked({LOCKSTEP_PROGRAM, "doctor"}, {}, fill), 1, text, "doctor");
  expect_one_error(train({"mnist", "--max-steps", "1", "--json", "/dev/full"}), 1, "/dev/full",
                   "report");
}

TEST_F(TrainCommand, TrainsWithoutStandardStreams) {
  const auto close_all = [] {
    for (int fd = 0; fd < 3; ++fd) close(fd);
  };
  const auto result = execute({"mnist", "--max-steps", "1", "--nproc-per-node", "2", "--batch-size",
                               "010", "--json", in_scratch("r.json")},
                              close_all);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["global_batch"], 10)
      << "numbers are decimal";
}

TEST_F(TrainCommand, TrainsOnGeneratedDigitsWithoutDataAndNetwork) {
  // Nothing listens on port 1.
  const Environment offline = {{"LOCKSTEP_DATA", ""}, {"LOCKSTEP_MIRROR", "http://127.0.0.1:1"}};
  const ProgramResult result = train({"mnist", "--max-steps", "2"}, offline);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("training on generated digits instead"),
                                HasSubstr("into a folder and name that (--data, LOCKSTEP_DATA)")));
  EXPECT_THAT(result.out, HasSubstr("generated digits"));
  expect_one_error(train({"cifar10"}, offline), 1, "cifar", "cifar10 offline");
}

TEST_F(TrainCommand, SaysThatTheDiskIsFull) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: mounts a tiny file system";
  std::filesystem::create_directory(scratch / "disk");
  const std::string disk = in_scratch("disk");
  // The mount exists only in the program's own namespace.
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

// Waits until the program has written a checkpoint to `out`, which means that it is training. False
// if it ended before.
bool begins_to_train(const ProgramRun& run, const std::filesystem::path& out) {
  while (!std::filesystem::exists(out / "checkpoint.safetensors")) {
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(run.pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid != 0) return false;
    usleep(1000);
  }
  return true;
}

TEST_F(TrainCommand, LeavesNoProcessWhenItIsKilled) {
  struct Case {
    const char* ranks;
    int signal;
    const char* line;
  };
  for (const auto& [ranks, signal, line] :
       {Case{"1", SIGINT, "error: interrupted by signal 2 (Interrupt)\n"},
        Case{"1", SIGTERM, "error: interrupted by signal 15 (Terminated)\n"},
        Case{"2", SIGINT, "error: interrupted by signal 2 (Interrupt)\n"},
        Case{"2", SIGTERM, "error: interrupted by signal 15 (Terminated)\n"}}) {
    const auto arguments = command({"mnist", "--nproc-per-node", ranks, "--batch-size", "4",
                                    "--max-epochs", "1000000", "--out", in_scratch("run")});
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run(arguments, {{"LOCKSTEP_DATA", data.path().string()}});
    ASSERT_TRUE(begins_to_train(run, scratch / "run")) << run.wait().err;
    kill(run.pid(), signal);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr(line));
    EXPECT_EQ(result.left_behind, 0) << ranks << " ranks, signal " << signal;
  }
}

bool ignores(pid_t process, int signal) {
  std::ifstream status(str("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigIgn:")) continue;
    return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1) != 0;
  }
  return false;
}

// A shell starts background programs of a script with SIGINT ignored, so that Ctrl-C does not end
// them.
TEST_F(TrainCommand, LeavesASignalIgnoredThatItWasStartedToIgnore) {
  for (const auto& [ignored, ending] : {std::pair{SIGINT, SIGTERM}, {SIGTERM, SIGINT}}) {
    SCOPED_TRACE(ignored);
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run(command({"mnist", "--batch-size", "4", "--max-epochs", "1000000", "--out",
                            in_scratch("run")}),
                   {{"LOCKSTEP_DATA", data.path().string()}},
                   [number = ignored] { signal(number, SIG_IGN); });
    ASSERT_TRUE(begins_to_train(run, scratch / "run")) << run.wait().err;
    EXPECT_TRUE(ignores(run.pid(), ignored));
    EXPECT_FALSE(ignores(run.pid(), ending));
    kill(run.pid(), ignored);
    kill(run.pid(), ending);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + ending) << result.err;
    EXPECT_THAT(result.err, HasSubstr(str("error: interrupted by signal ", ending, " (")));
    EXPECT_THAT(result.err, Not(HasSubstr(str("error: interrupted by signal ", ignored, " ("))));
  }
}

// The program's terminal output until it ends.
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
  // Reads until no process has the other end open.
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
  EXPECT_TRUE(begins_to_train(run, scratch / "run"));
  for (const pid_t rank : children_of(run.pid())) kill(rank, SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 1);
  reader.join();
  EXPECT_THAT(seen, HasSubstr("\r\x1b[Kerror: rank"));
}

// OpenMP reads the variables before main(), so that they must be in the environment from the start.
TEST_F(TrainCommand, ComputesWithThreadsThatSleepSoon) {
  const auto environment_of_run = [&](const std::string& choice) {
    std::vector<std::string> words = {"/usr/bin/env", "-u", "OMP_WAIT_POLICY", "-u",
                                      "GOMP_SPINCOUNT"};
    if (!choice.empty()) words.push_back(choice);
    const auto run_words = command({"mnist", "--max-epochs", "1000000", "--out", in_scratch("run"),
                                    "--overwrite", "--accelerator", "cpu"});
    words.insert(words.end(), run_words.begin(), run_words.end());
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run(words, {{"LOCKSTEP_DATA", data.path().string()}});
    siginfo_t ended{};
    while (!std::filesystem::exists(scratch / "run/run.json") && ended.si_pid == 0) {
      usleep(1000);
      waitid(P_PID, static_cast<id_t>(run.pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    std::string environment = read_text(str("/proc/", run.pid(), "/environ"));
    kill(run.pid(), SIGKILL);
    run.wait();
    return environment;
  };
  EXPECT_THAT(environment_of_run(""), HasSubstr(std::string("\0GOMP_SPINCOUNT=10000\0", 22)));
  EXPECT_THAT(environment_of_run("OMP_WAIT_POLICY=passive"), Not(HasSubstr("GOMP_SPINCOUNT")));
  EXPECT_THAT(environment_of_run("GOMP_SPINCOUNT=9"), Not(HasSubstr("GOMP_SPINCOUNT=10000")));
}

}  // namespace
}  // namespace lockstep::testing_support
