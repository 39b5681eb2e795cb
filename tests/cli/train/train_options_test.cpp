// Where each option of `lockstep train` is stored, and which defaults of recipes --help names.
#include <lockstep/cli/train/train_settings.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/recipe_names.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/recipes/recipe.h>
#include <tests/cli/option_table.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

TEST(TrainOptions, ReachTheirOwnFields) {
  testing_support::expect_own_fields<TrainArguments>(
      add_train_options,
      {
          {{"mnist"}, [](auto& a) { a.recipe = "mnist"; }},
          // Recipe
          {{"--model", "resnet34"}, [](auto& a) { a.of_recipe.model = "resnet34"; }},
          {{"--program", "net.pt2"}, [](auto& a) { a.of_recipe.program = "net.pt2"; }},
          {{"--inputs", "x=images"}, [](auto& a) { a.of_recipe.inputs = "x=images"; }},
          {{"--image-size", "96"}, [](auto& a) { a.of_recipe.image_size = 96; }},
          {{"--weights", "a.pt"}, [](auto& a) { a.of_recipe.weights = "a.pt"; }},
          {{"--val-fraction", "0.25"}, [](auto& a) { a.of_recipe.val_fraction = 0.25; }},
          {{"--cache", "3MB"}, [](auto& a) { a.of_recipe.cache = "3MB"; }},
          // Strategy
          {{"--strategy", "zero1"}, [](auto& a) { a.strategy = "zero1"; }},
          {{"--devices", "3"}, [](auto& a) { a.devices = 3; }},
          {{"--device-weights", "3,1"}, [](auto& a) { a.device_weights = "3,1"; }},
          {{"--dp-loss", "on-each"}, [](auto& a) { a.dp_loss = "on-each"; }},
          {{"--stages", "4"}, [](auto& a) { a.stages = 4; }},
          {{"--micro-batches", "5"}, [](auto& a) { a.micro_batches = 5; }},
          {{"--recompute"}, [](auto& a) { a.recompute = true; }},
          {{"--shard-optimizer"}, [](auto& a) { a.shard_optimizer = true; }},
          {{"--sync-batchnorm"}, [](auto& a) { a.sync_batchnorm = true; }},
          {{"--find-unused-parameters"}, [](auto& a) { a.find_unused_parameters = true; }},
          {{"--bucket-cap-mb", "0.5"}, [](auto& a) { a.bucket_cap_mb = 0.5; }},
          // Processes and devices
          {{"--nproc-per-node", "6"}, [](auto& a) { a.nproc_per_node = 6; }},
          {{"--accelerator", "cpu"}, [](auto& a) { a.accelerator = "cpu"; }},
          {{"--share-gpu"}, [](auto& a) { a.share_gpu = true; }},
          {{"--backend", "gloo"}, [](auto& a) { a.backend = "gloo"; }},
          {{"--timeout", "7.5"}, [](auto& a) { a.timeout_seconds = 7.5; }},
          {{"--threads", "8"}, [](auto& a) { a.threads = 8; }},
          // Length of the run
          {{"--batch-size", "9"}, [](auto& a) { a.batch_size = 9; }},
          {{"--max-epochs", "10"}, [](auto& a) { a.max_epochs = 10; }},
          {{"--accumulate-grad-batches", "11"}, [](auto& a) { a.accumulate_grad_batches = 11; }},
          {{"--min-epochs", "12"}, [](auto& a) { a.limits.min_epochs = 12; }},
          {{"--max-steps", "13"}, [](auto& a) { a.limits.max_steps = 13; }},
          {{"--max-time", "1:30"}, [](auto& a) { a.limits.max_time = "1:30"; }},
          {{"--early-stopping", "loss:3"}, [](auto& a) { a.limits.early_stopping = "loss:3"; }},
          {{"--fast-dev-run", "14"}, [](auto& a) { a.limits.fast_dev_run = 14; }},
          {{"--limit-train-batches", "15"}, [](auto& a) { a.limits.limit_train_batches = 15; }},
          {{"--overfit-batches", "16"}, [](auto& a) { a.limits.overfit_batches = 16; }},
          // Evaluation
          {{"--limit-test-batches", "17"}, [](auto& a) { a.limits.limit_val_batches = 17; }},
          {{"--limit-val-batches", "18"}, [](auto& a) { a.limits.limit_val_batches = 18; }},
          {{"--check-val-every-n-epoch", "19"},
           [](auto& a) { a.limits.check_val_every_n_epoch = 19; }},
          {{"--val-check-interval", "20"}, [](auto& a) { a.limits.val_check_interval = 20; }},
          {{"--num-sanity-val-steps", "21"}, [](auto& a) { a.limits.num_sanity_val_steps = 21; }},
          {{"--ema-decay", "0.75"}, [](auto& a) { a.limits.ema_decay = 0.75; }},
          // Optimizer
          {{"--optimizer", "adam"}, [](auto& a) { a.optimizer.name = "adam"; }},
          {{"--lr", "0"}, [](auto& a) { a.optimizer.lr = 0; }},
          {{"--weight-decay", "0"}, [](auto& a) { a.optimizer.weight_decay = 0; }},
          {{"--momentum", "0"}, [](auto& a) { a.optimizer.momentum = 0; }},
          {{"--nesterov"}, [](auto& a) { a.optimizer.nesterov = true; }},
          {{"--betas", "0.5", "0.625"}, [](auto& a) { a.optimizer.betas = std::pair(0.5, 0.625); }},
          {{"--eps", "0"}, [](auto& a) { a.optimizer.eps = 0; }},
          {{"--amsgrad"}, [](auto& a) { a.optimizer.amsgrad = true; }},
          {{"--gradient-clip-norm", "1.5"}, [](auto& a) { a.limits.gradient_clip_norm = 1.5; }},
          {{"--gradient-clip-val", "2.5"}, [](auto& a) { a.limits.gradient_clip_val = 2.5; }},
          {{"--gradient-clip-algorithm", "value"},
           [](auto& a) { a.limits.gradient_clip_algorithm = "value"; }},
          {{"--on-nan", "skip"}, [](auto& a) { a.limits.on_nan = "skip"; }},
          // Schedules
          {{"--schedule", "step", "--schedule", "gpipe"},
           [](auto& a) { a.schedule.schedules = {"step", "gpipe"}; }},
          {{"--step-epochs", "3.5"}, [](auto& a) { a.schedule.step_epochs = 3.5; }},
          {{"--milestones", "3,4"}, [](auto& a) { a.schedule.milestones = "3,4"; }},
          {{"--gamma", "0.25"}, [](auto& a) { a.schedule.gamma = 0.25; }},
          {{"--pct-start", "0"}, [](auto& a) { a.schedule.pct_start = 0; }},
          {{"--div-factor", "22"}, [](auto& a) { a.schedule.div_factor = 22; }},
          {{"--final-div-factor", "23"}, [](auto& a) { a.schedule.final_div_factor = 23; }},
          {{"--cycle-momentum"}, [](auto& a) { a.schedule.cycle_momentum = true; }},
          {{"--base-momentum", "0"}, [](auto& a) { a.schedule.base_momentum = 0; }},
          {{"--max-momentum", "0"}, [](auto& a) { a.schedule.max_momentum = 0; }},
          {{"--plateau", "loss:5"}, [](auto& a) { a.schedule.plateau = "loss:5"; }},
          {{"--warmup-epochs", "0"}, [](auto& a) { a.schedule.warmup_epochs = 0; }},
          // Computation
          {{"--precision", "bf16"}, [](auto& a) { a.precision = "bf16"; }},
          {{"--matmul-precision", "high"}, [](auto& a) { a.matmul_precision = "high"; }},
          {{"--cudnn-benchmark"}, [](auto& a) { a.cudnn_benchmark = true; }},
          {{"--memory-format", "contiguous"}, [](auto& a) { a.memory_format = "contiguous"; }},
          {{"--cuda-graph"}, [](auto& a) { a.cuda_graph = true; }},
          {{"--no-fused-kernels"}, [](auto& a) { a.no_fused_kernels = true; }},
          {{"--seed", "24"}, [](auto& a) { a.seed = 24; }},
          {{"--deterministic"}, [](auto& a) { a.limits.deterministic = true; }},
          {{"--detect-anomaly"}, [](auto& a) { a.limits.detect_anomaly = true; }},
          // Data
          {{"--data", "photos"}, [](auto& a) { a.data = "photos"; }},
          {{"--loader", "cuda"}, [](auto& a) { a.loader = "cuda"; }},
          {{"--workers", "0"}, [](auto& a) { a.workers = 0; }},
          {{"--on-corrupt-image", "skip"}, [](auto& a) { a.on_corrupt_image = "skip"; }},
          {{"--max-image-pixels", "25"}, [](auto& a) { a.max_image_pixels = 25; }},
          {{"--decoding", "scaled"}, [](auto& a) { a.decoding = "scaled"; }},
          {{"--exif-transpose"}, [](auto& a) { a.exif_transpose = true; }},
          {{"--mix", "cutmix"}, [](auto& a) { a.mix = "cutmix"; }},
          // Checkpoints
          {{"--out", "run"}, [](auto& a) { a.out = "run"; }},
          {{"--resume"}, [](auto& a) { a.resume = kResumeFlag; }},
          {{"--overwrite"}, [](auto& a) { a.overwrite = true; }},
          {{"--shutdown-timeout", "60"}, [](auto& a) { a.shutdown_timeout_seconds = 60; }},
          {{"--every-n-train-steps", "26"},
           [](auto& a) { a.checkpoints.every_n_train_steps = 26; }},
          {{"--keep-checkpoints", "27"}, [](auto& a) { a.checkpoints.keep_checkpoints = 27; }},
          {{"--save-top-k", "loss:2"}, [](auto& a) { a.checkpoints.save_top_k = "loss:2"; }},
          {{"--background-checkpoints"}, [](auto& a) { a.checkpoints.in_background = true; }},
          // Logs and reports
          {{"--log-every-n-steps", "28"}, [](auto& a) { a.limits.log_every_n_steps = 28; }},
          {{"--model-summary", "-1"}, [](auto& a) { a.limits.model_summary = -1; }},
          {{"--log-histograms-every-n-steps", "29"},
           [](auto& a) { a.limits.log_histograms_every_n_steps = 29; }},
          {{"--profiler", "simple"}, [](auto& a) { a.limits.profiler = "simple"; }},
          {{"--trace"}, [](auto& a) { a.limits.trace = true; }},
          {{"--trace-steps", "30"}, [](auto& a) { a.limits.trace_steps = 30; }},
          {{"--json", "run.json"}, [](auto& a) { a.json = "run.json"; }},
          {{"--logger", "csv,jsonl"}, [](auto& a) { a.logger = "csv,jsonl"; }},
          {{"--log-dir", "logs"}, [](auto& a) { a.log_dir = "logs"; }},
          {{"--mlflow-uri", "http://host:1"}, [](auto& a) { a.mlflow_uri = "http://host:1"; }},
      });
}

// Others say in words what happens without them.
TEST(TrainOptions, ShowTheirDefaultsAndWhatTheyTake) {
  CLI::App command;
  TrainArguments arguments;
  add_train_options(command, arguments);
  std::map<std::string, std::string> defaults;
  for (const CLI::Option* option : command.get_options()) {
    const std::string text = option->get_default_str();
    if (!text.empty()) defaults[option->get_name()] = text;
  }
  const std::map<std::string, std::string> expected = {
      {"--accelerator", "auto"}, {"--backend", "auto"}, {"--timeout", "300"},
      {"--precision", "32"},     {"--seed", "0"},       {"--loader", "native"},
      {"--mix", "none"},         {"--on-nan", "warn"},  {"--on-corrupt-image", "stop"},
      {"--profiler", "none"}};
  EXPECT_EQ(defaults, expected);
  const std::pair<const char*, const char*> types[] = {
      {"--weights", "FILE"},  {"--cache", "SIZE"},   {"--betas", "FLOAT FLOAT"},
      {"--data", "PATH"},     {"--out", "DIR"},      {"--resume", "[auto]"},
      {"--json", "FILE"},     {"--logger", "NAMES"}, {"--log-dir", "DIR"},
      {"--mlflow-uri", "URI"}};
  for (const auto& [name, type] : types) {
    EXPECT_EQ(command.get_option(name)->get_type_name(), type) << name;
  }
}

// The message of the error in these words; "accepted" if there is none.
std::string usage_error_of(std::vector<std::string> words) {
  CLI::App command;
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainArguments arguments;
  add_train_options(command, arguments);
  std::reverse(words.begin(), words.end());
  try {
    command.parse(words);
    return "accepted";
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
}

TEST(TrainOptions, TakeWholeNumbersAndWordsOnly) {
  for (const std::string name : {"--image-size",
                                 "--devices",
                                 "--stages",
                                 "--micro-batches",
                                 "--nproc-per-node",
                                 "--threads",
                                 "--batch-size",
                                 "--max-epochs",
                                 "--accumulate-grad-batches",
                                 "--min-epochs",
                                 "--max-steps",
                                 "--fast-dev-run",
                                 "--limit-train-batches",
                                 "--overfit-batches",
                                 "--limit-test-batches",
                                 "--check-val-every-n-epoch",
                                 "--val-check-interval",
                                 "--num-sanity-val-steps",
                                 "--workers",
                                 "--max-image-pixels",
                                 "--every-n-train-steps",
                                 "--keep-checkpoints",
                                 "--log-every-n-steps",
                                 "--model-summary",
                                 "--log-histograms-every-n-steps",
                                 "--trace-steps"}) {
    EXPECT_EQ(usage_error_of({"mnist", name, "010"}), "accepted") << name;
    EXPECT_EQ(usage_error_of({"mnist", name, "1e1"}), name + ": must be a whole number, got '1e1'");
  }
  EXPECT_EQ(usage_error_of({"mnist", "--seed", "1e1"}),
            "--seed: must be a whole number of at least 0, got '1e1'");
  for (const char* name : {"--limit-train-batches", "--overfit-batches", "--limit-test-batches",
                           "--val-check-interval"}) {
    EXPECT_EQ(usage_error_of({"mnist", name, "0.5"}),
              lockstep::str(name, ": must be a number of batches, not a share of them, got '0.5'"));
  }
  for (const std::string name : {"--model",
                                 "--program",
                                 "--inputs",
                                 "--weights",
                                 "--cache",
                                 "--strategy",
                                 "--device-weights",
                                 "--dp-loss",
                                 "--accelerator",
                                 "--backend",
                                 "--milestones",
                                 "--plateau",
                                 "--precision",
                                 "--matmul-precision",
                                 "--memory-format",
                                 "--data",
                                 "--loader",
                                 "--on-corrupt-image",
                                 "--decoding",
                                 "--mix",
                                 "--out",
                                 "--save-top-k",
                                 "--profiler",
                                 "--json",
                                 "--logger",
                                 "--log-dir",
                                 "--mlflow-uri",
                                 "--max-time",
                                 "--early-stopping",
                                 "--optimizer",
                                 "--on-nan",
                                 "--gradient-clip-algorithm"}) {
    EXPECT_EQ(usage_error_of({"mnist", name, ""}), name + ": must not be empty");
  }
  EXPECT_THAT(usage_error_of({"--seed", "1"}), testing::HasSubstr("RECIPE is required"));
}

TEST(TrainOptions, NameTheirRecipesAndDefaults) {
  CLI::App command;
  TrainArguments arguments;
  add_train_options(command, arguments);
  const auto help = [&](const char* name) { return command.get_option(name)->get_description(); };
  EXPECT_EQ(help("--model"),
            "Network: resnet18, resnet34, resnet50 (classify only, default resnet18)");
  EXPECT_EQ(help("--image-size"),
            "Side of the network's input images, in pixels: for classify 64 to 4096, for "
            "autoencoder a multiple of 20 up to 4000 (classify, autoencoder and program only, "
            "default 224 for classify, 160 for autoencoder, 224 for program)");
  const auto takes = [](const char* recipe, std::int64_t side) {
    try {
      recipes::chosen_recipe(recipe, {.image_size = side});
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  for (const std::int64_t side : {64, 4096}) EXPECT_TRUE(takes("classify", side)) << side;
  for (const std::int64_t side : {63, 4097}) EXPECT_FALSE(takes("classify", side)) << side;
  for (const std::int64_t side : {20, 4000}) EXPECT_TRUE(takes("autoencoder", side)) << side;
  for (const std::int64_t side : {0, 30, 4020}) EXPECT_FALSE(takes("autoencoder", side)) << side;
  EXPECT_THAT(help("--val-fraction"),
              testing::EndsWith(" (classify, autoencoder, program and packs only, default 0.2)"));
  EXPECT_THAT(help("--cache"),
              testing::HasSubstr(" (classify, autoencoder, program and packs only, --loader "));
  // Other commands name the recipes of an option by the same lists.
  EXPECT_EQ(
      recipes_with(has_own_model),
      (std::vector<std::string>{"mnist", "cifar10", "classify", "autoencoder", "resnet50-split"}));
  EXPECT_EQ(only_recipes(needs_program), "program only");
  EXPECT_EQ(only_recipes(evaluates_image_size), "classify and autoencoder only");
  EXPECT_EQ(only_recipes(has_models), "classify only");
  EXPECT_EQ(only_recipes(has_image_sizes), "classify, autoencoder and program only");
  EXPECT_EQ(only_recipes(splits_folder), "classify, autoencoder and program only");
  EXPECT_EQ(only_recipes(has_fused_kernels), "mnist only");
  // A run without these options uses these defaults.
  const auto choices_of = [](const char* name) { return resolve_recipe(name, {}).recipe->choices; };
  EXPECT_EQ(choices_of("classify").at(recipes::kModelChoice), "resnet18");
  EXPECT_EQ(choices_of("classify").at(recipes::kImageSizeChoice), "224");
  EXPECT_EQ(choices_of("autoencoder").at(recipes::kImageSizeChoice), "160");
}

TEST(TrainOptions, TakeWeightsFromAFileOnly) {
  const testing_support::TemporaryDirectory folder;
  folder.write("weights.pth", "");
  const auto refusal = [&](const std::filesystem::path& weights) {
    return testing_support::message_of<ConfigError>(
        [&] { resolve_recipe("mnist", {.weights = weights.string()}); });
  };
  EXPECT_EQ(resolve_recipe("mnist", {.weights = (folder / "weights.pth").string()}).weights,
            folder / "weights.pth");
  EXPECT_TRUE(resolve_recipe("mnist", {}).weights.empty());
  const std::string what_to_do = "; give a .safetensors, .pt or .pth file";
  EXPECT_EQ(refusal(folder.path()),
            "train: --weights " + folder.path().string() + " is not a file" + what_to_do);
  EXPECT_EQ(refusal(folder / "none.pth"),
            "train: --weights " + (folder / "none.pth").string() + " does not exist" + what_to_do);
  EXPECT_EQ(refusal("/dev/null"), "train: --weights /dev/null is not a file" + what_to_do);
  EXPECT_EQ(refusal(""), "train: --weights  does not exist" + what_to_do);
}

TEST(TrainOptions, TakeSizesOfTheCacheAndSharesOfValidationImages) {
  const auto refusal = [](const RecipeArguments& arguments) {
    return testing_support::message_of<ConfigError>([&] { resolve_recipe("classify", arguments); });
  };
  const RecipeSettings usual = resolve_recipe("classify", {});
  EXPECT_FALSE(usual.cache_bytes);
  EXPECT_FALSE(usual.validation_fraction);
  for (const auto& [text, bytes] :
       {std::pair("none", std::int64_t{0}), std::pair("2GB", std::int64_t{2'000'000'000}),
        std::pair("1.5MiB", std::int64_t{3 << 19}), std::pair("1TiB", std::int64_t{1} << 40)}) {
    EXPECT_EQ(resolve_recipe("classify", {.cache = text}).cache_bytes, bytes) << text;
  }
  for (const char* text : {"0", "1.1TiB", "all", ""}) {
    EXPECT_EQ(refusal({.cache = text}),
              std::string("train: --cache must be a size such as 2GB, up to 1TiB, or none, got '") +
                  text + "'");
  }
  for (const double share : {0.0, 0.25, 1.0}) {
    EXPECT_EQ(resolve_recipe("classify", {.val_fraction = share}).validation_fraction, share);
  }
  for (const double share : {-0.1, 1.1}) {
    EXPECT_THAT(refusal({.val_fraction = share}),
                testing::StartsWith("train: --val-fraction must be from 0 to 1, got "));
  }
}

TEST(TrainOptions, NameTheRecipesOfAnOptionThatOthersLack) {
  const auto refusal = [](const RecipeArguments& arguments) {
    return testing_support::message_of<ConfigError>([&] { resolve_recipe("mnist", arguments); });
  };
  const std::string both =
      " has no effect on mnist; it belongs to classify, autoencoder and program; ";
  EXPECT_EQ(refusal({.model = "resnet18"}),
            "train: --model has no effect on mnist; it belongs to classify; remove --model");
  EXPECT_EQ(refusal({.image_size = 28}), "train: --image-size" + both + "remove --image-size");
  const std::string packs =
      " has no effect on mnist unless --data is a pack; it belongs to packs, classify, "
      "autoencoder and program; ";
  EXPECT_EQ(refusal({.val_fraction = 0.5}),
            "train: --val-fraction" + packs + "remove --val-fraction");
  EXPECT_EQ(refusal({.cache = "none"}), "train: --cache" + packs + "remove --cache");
  EXPECT_EQ(refusal({.inputs = "x=images"}),
            "train: --inputs has no effect on mnist; it belongs to program; remove --inputs");
}

TEST(TrainOptions, NameWhatThereIsOnlyWithOrWithoutImagesOfAProgram) {
  const auto refusal = [](const RecipeArguments& arguments, const char* data) {
    return testing_support::message_of<ConfigError>(
        [&] { resolve_recipe("program", arguments, data); });
  };
  EXPECT_EQ(refusal({}, "tokens.safetensors"),
            "train: recipe program trains a model that Python exported; give --program FILE, a "
            "file of torch.export.save");
  const std::string tensors =
      " is about images, but without --inputs the data of program are tensors; remove it";
  EXPECT_EQ(refusal({.program = "net.pt2", .image_size = 32}, "tokens.safetensors"),
            "train: --image-size" + tensors);
  EXPECT_EQ(refusal({.program = "net.pt2", .cache = "none"}, "tokens.safetensors"),
            "train: --cache" + tensors);
  const RecipeArguments split{.program = "net.pt2", .inputs = "x=images", .val_fraction = 0.5};
  EXPECT_EQ(refusal(split, "cifar10"),
            "train: --val-fraction has no effect on --data cifar10; remove it");
  EXPECT_EQ(refusal(split, "photos"), "train: --program net.pt2 does not exist; give a .pt2 file");
}

}  // namespace
}  // namespace lockstep::cli
