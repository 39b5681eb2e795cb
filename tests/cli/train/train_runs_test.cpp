// Runs of `lockstep train` with other settings than the defaults, and what they report.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/formats/png.h>
#include <tests/cli/program_run.h>
#include <tests/cli/train_command.h>
#include <tests/support/devices/dali.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

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

// DALI's batches equal those of the native engine up to rounding
// (tests/data/loader/dali_engine_test.cpp), and so do the training steps.
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
    return report["validation"]["loss"].get<double>();
  };
  EXPECT_NEAR(loss_of("dali"), loss_of("native"), 1e-4);
}

TEST_F(TrainCommand, TrainsWithLibTorchsOperationsAlone) {
  const auto report_of = [&](std::vector<std::string> more) {
    const std::string file = in_scratch("report.json");
    std::vector<std::string> arguments = {"mnist", "--max-steps", "3", "--batch-size",
                                          "8",     "--json",      file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = train(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(read_text(file));
  };
  const auto fused = report_of({});
  const auto plain = report_of({"--no-fused-kernels"});
  EXPECT_TRUE(fused["fused_kernels"].get<bool>());
  EXPECT_FALSE(plain["fused_kernels"].get<bool>());
  // Both runs use the same net and the same sequence of random numbers.
  EXPECT_NEAR(plain["validation"]["loss"].get<double>(), fused["validation"]["loss"].get<double>(),
              1e-4);
}

TEST_F(TrainCommand, AccumulatesGradients) {
  const std::string file = in_scratch("accumulated.json");
  const auto result = train({"mnist", "--accumulate-grad-batches", "3", "--batch-size", "8",
                             "--max-epochs", "1", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("global batch 8 x 3 = 24, learning rate 0.05"));
  EXPECT_EQ(nlohmann::json::parse(read_text(file))["accumulate_grad_batches"], 3);
}

// Two steps make the weights so large that the loss of the third one is NaN or infinite.
TEST_F(TrainCommand, DoesWithADivergedRunWhatItIsTold) {
  struct Case {
    const char* policy;
    const char* ranks;
    int exit_code;
    std::vector<std::string> texts;  // in standard error
  };
  const Case cases[] = {
      {"warn",
       "1",
       0,
       {"(step 3 of the run); the run continues; lower the learning rate, clip the gradients, or "
        "let --on-nan skip such steps",
        "step-00000003 holds values that are not finite: the run has diverged; ",
        "`ln -sfn step-00000002 "}},
      {"stop", "1", 1, {"(step 3 of the run); the run stops before the update of that step"}},
      {"stop", "2", 1, {"(step 3 of the run); the run stops before the update of that step"}},
      {"skip",
       "2",
       0,
       {"(step 3 of the run); the update of that step is skipped", "2 of 4 steps were skipped"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.policy << ' ' << c.ranks);
    const std::string out = in_scratch(std::string(c.policy) + c.ranks);
    std::vector<std::string> arguments = {
        "mnist", "--on-nan",           c.policy, "--nproc-per-node", c.ranks,    "--lr",
        "1e6",   "--max-steps",        "4",      "--batch-size",     "8",        "--out",
        out,     "--keep-checkpoints", "1",      "--schedule",       "constant", "--warmup-epochs",
        "0"};
    if (c.policy == std::string("warn")) {
      arguments.insert(arguments.end(), {"--every-n-train-steps", "1"});
    }
    const auto result = train(arguments);
    EXPECT_EQ(result.exit_code, c.exit_code) << result.err;
    for (const std::string& text : c.texts) EXPECT_THAT(result.err, HasSubstr(text));
  }
}

// The run learns nothing, so that the second evaluation is no better than the first.
TEST_F(TrainCommand, EndsEarlyAndEvaluatesOnTheWay) {
  const std::string file = in_scratch("early.json");
  const auto result = train({"mnist",
                             "--nproc-per-node",
                             "2",
                             "--lr",
                             "0",
                             "--batch-size",
                             "8",
                             "--max-epochs",
                             "9",
                             "--early-stopping",
                             "accuracy:1:max",
                             "--min-epochs",
                             "3",
                             "--limit-train-batches",
                             "4",
                             "--val-check-interval",
                             "2",
                             "--limit-val-batches",
                             "2",
                             "--ema-decay",
                             "0.9",
                             "--num-sanity-val-steps",
                             "1",
                             "--json",
                             file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("epoch 1/9  step 2 of 4  validation "));
  EXPECT_THAT(result.out, HasSubstr("the run ended early: accuracy has not improved on "));
  const auto report = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(report["epochs"].size(), 3U);
  EXPECT_THAT(report["stop_reason"].get<std::string>(), HasSubstr("accuracy has not improved"));
  EXPECT_EQ(report["epochs"][2]["metrics"], report["validation"]);
  EXPECT_TRUE(report["validation"].contains("accuracy"));
  EXPECT_EQ(report["learning_rate"], 0.0);
}

// A misspelt metric costs no step and leaves no record of a failed run.
TEST_F(TrainCommand, NamesTheFlagThatWatchesAnUnknownMetric) {
  const std::pair<const char*, const char*> cases[] = {
      {"--save-top-k", "acuracy:1:max"},
      {"--early-stopping", "acuracy:3:max"},
      {"--plateau", "acuracy:3:max"},
  };
  for (const auto& [flag, value] : cases) {
    const std::string out = in_scratch(std::string("run") + flag);
    std::vector<std::string> arguments = {"mnist", "--out", out, "--batch-size", "32", flag, value};
    if (std::string(flag) == "--plateau")
      arguments.insert(arguments.end(), {"--schedule", "plateau"});
    expect_one_error(train(arguments), 2,
                     std::string(flag) +
                         ": the evaluation has no value 'acuracy'; it has loss, "
                         "accuracy, train_loss; did you mean 'accuracy'?",
                     flag);
    EXPECT_FALSE(std::filesystem::exists(out + "/run.json")) << flag;
    EXPECT_FALSE(std::filesystem::exists(out + "/checkpoints")) << flag;
  }
  expect_one_error(train({"mnist", "--early-stopping", "loss:3", "--limit-val-batches", "0"}), 2,
                   "--early-stopping: watches 'loss' of the evaluations, but this run has none; "
                   "raise --limit-test-batches, or watch train_loss",
                   "no evaluation");
}

TEST_F(TrainCommand, TrainsReplicasInOneProcess) {
  const std::string file = in_scratch("dp.json");
  const std::vector<std::string> arguments = {
      "mnist", "--strategy", "dp", "--devices",    "2", "--dp-loss", "on-each", "--max-steps",
      "3",     "--json",     file, "--batch-size", "9"};
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

  EXPECT_FALSE(report.contains("device_weights"));

  std::vector<std::string> on_cpu = arguments;
  on_cpu.insert(on_cpu.end(), {"--accelerator", "cpu", "--device-weights", "2,1"});
  result = train(on_cpu);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("mnist: dp with 2 replicas (weights 2, 1), 1 process"));
  EXPECT_EQ(nlohmann::json::parse(read_text(file))["device_weights"],
            nlohmann::json::array({2.0, 1.0}));
}

TEST_F(TrainCommand, TrainsAPipelineOfThreads) {
  const std::string file = in_scratch("pipeline.json");
  const auto result = train({"resnet50-split",
                             "--strategy",
                             "pipeline",
                             "--micro-batches",
                             "2",
                             "--schedule",
                             "zb-h1",
                             "--schedule",
                             "constant",
                             "--batch-size",
                             "4",
                             "--max-steps",
                             "1",
                             "--limit-test-batches",
                             "1",
                             "--accelerator",
                             "cpu",
                             "--out",
                             in_scratch("split"),
                             "--json",
                             file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("resnet50-split: pipeline of 2 stages (zb-h1, 2 "
                                    "micro-batches), 1 process"));
  const auto report = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(report["strategy"], "pipeline");
  EXPECT_EQ(report["stages"], 2);
  EXPECT_EQ(report["cuts"], nlohmann::json::array({"layer2"}));
  EXPECT_THAT(result.out, HasSubstr("\ncut after layer2\n"));
  EXPECT_EQ(report["micro_batches"], 2);
  EXPECT_EQ(report["schedule"], "zb-h1");
  // The checkpoint has the names of the unsplit model.
  const std::string checkpoint =
      read_text(scratch / "split/checkpoint.safetensors") +
      read_text(scratch / "split/checkpoints/latest/training.safetensors");
  for (const char* name : {R"("layer2.3.bn3.running_var")", R"("layer3.0.downsample.0.weight")",
                           R"("optimizer.momentum_buffer.fc.weight")"}) {
    EXPECT_NE(checkpoint.find(name), std::string::npos) << name;
  }
}

TEST_F(TrainCommand, DecodesImagesOfAsManyPixelsAsItsOptionAllows) {
  for (const std::string name :
       {"train/cat/1.png", "train/dog/2.png", "val/cat/3.png", "val/dog/4.png"}) {
    scratch.write("photos/" + name,
                  detail::encode_png(std::vector<std::uint8_t>(20 * 24 * 3, 9), 20, 24));
  }
  const auto train_with = [&](const std::string& limit) {
    return train({"resnet50-split", "--data", in_scratch("photos"), "--max-image-pixels", limit,
                  "--batch-size", "2", "--max-steps", "1", "--limit-test-batches", "1",
                  "--accelerator", "cpu"});
  };
  expect_one_error(train_with("479"), 1,
                   "20x24 has 480 pixels, at most 479 are allowed; raise "
                   "--max-image-pixels\n",
                   "one pixel too many");
  const ProgramResult result = train_with("480");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("note: only 2 images to train on, "));
  EXPECT_EQ(result.error_lines(), 0) << result.err;
}

// The heading names the stages that zb-h1 cannot split. They do not change the result: 1f1b, which
// splits no backward, ends with the same bits, also when it recomputes each forward.
TEST_F(TrainCommand, TrainsAPipelineWhoseStagesHaveWholeBackwards) {
  const auto run_with = [&](const std::string& schedule, bool recompute = false) {
    const std::string file = in_scratch(schedule + ".json");
    std::vector<std::string> arguments = {
        "mnist", "--strategy",    "pipeline", "--stages",     "3", "--micro-batches",
        "2",     "--schedule",    schedule,   "--batch-size", "8", "--max-steps",
        "3",     "--accelerator", "cpu",      "--json",       file};
    if (recompute) arguments.push_back("--recompute");
    const auto result = train(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::pair(result.out, nlohmann::json::parse(read_text(file)));
  };
  const auto [split_out, split] = run_with("zb-h1");
  EXPECT_THAT(split_out, HasSubstr("\ncut after conv1, conv2; stages 0, 1 compute their backward "
                                   "as a whole\n"));
  EXPECT_EQ(split["cuts"], nlohmann::json::array({"conv1", "conv2"}));
  EXPECT_EQ(split["whole_backward"], nlohmann::json::array({0, 1}));
  const auto [plain_out, plain] = run_with("1f1b");
  EXPECT_THAT(plain_out, HasSubstr("\ncut after conv1, conv2\n"));
  EXPECT_TRUE(plain["whole_backward"].empty());
  EXPECT_EQ(split["validation"]["loss"], plain["validation"]["loss"]);
  EXPECT_EQ(plain["recompute"], false);
  const auto [twice_out, twice] = run_with("1f1b", /*recompute=*/true);
  EXPECT_THAT(twice_out, HasSubstr("(1f1b, 2 micro-batches, recompute)"));
  EXPECT_EQ(twice["recompute"], true);
  EXPECT_EQ(twice["validation"]["loss"], plain["validation"]["loss"]);
  EXPECT_EQ(twice["epochs"][0]["train_loss"], plain["epochs"][0]["train_loss"]);
}

// --accelerator auto reports that there are no GPUs; cuda refuses to run.
TEST_F(TrainCommand, TellsAPipelineThatThereIsNoGpu) {
  const auto run_on = [&](const char* accelerator) {
    return train({"mnist", "--strategy", "pipeline", "--stages", "2", "--batch-size", "8",
                  "--max-steps", "1", "--limit-test-batches", "1", "--accelerator", accelerator},
                 {{"CUDA_VISIBLE_DEVICES", ""}});
  };
  ProgramResult result = run_on("auto");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err,
            "note: --strategy pipeline computes on the CPU: this process sees no GPU\n");
  result = run_on("cpu");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  expect_one_error(run_on("cuda"), 2, "--accelerator cuda needs 2 GPUs, but this process sees 0",
                   "pipeline on GPUs");
}

TEST_F(TrainCommand, TrainsWithAnotherOptimizerInFloat16) {
  const std::vector<std::string> arguments = {"mnist",
                                              "--optimizer",
                                              "adamw",
                                              "--betas",
                                              "0.5",
                                              "0.6",
                                              "--betas",  // the last pair counts
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
  // The checkpoint's header records the settings of the training.
  const std::string checkpoint =
      read_text(scratch / "adam/checkpoints/latest/training.safetensors");
  for (const char* text : {R"("optimizer":"adamw")", R"("betas":"0.8 0.99")", R"("eps":"1e-06")",
                           R"("amsgrad":"true")", R"("gradient_clip_norm":"0.5")",
                           "optimizer.max_exp_avg_sq.conv1.weight", "optimizer.step.fc2.bias",
                           "optimizer.grad_scaler.scale"}) {
    EXPECT_NE(checkpoint.find(text), std::string::npos) << text;
  }
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
  // Wait until both programs have ended, so that any process that still runs was left behind.
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

}  // namespace
}  // namespace lockstep::testing_support
