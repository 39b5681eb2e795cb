// Each list of names in --help, and in what doctor finds, is the table against which the program
// checks the option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/bench/collectives/collective.h>
#include <lockstep/bench/strategies/ways.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/cli/bench/strategies_settings.h>
#include <lockstep/cli/exported/draw_options.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/operators_option.h>
#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/optim/options.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/simulate/simulation.h>
#include <lockstep/train/optimization/matmul_precision.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/strategies/strategy.h>
#include <tests/cli/forked_program.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using ::testing::Not;
using Names = std::vector<std::string>;

struct ListedOption {
  std::vector<std::string> command;
  std::string option{};
  Names names{};
  std::vector<std::string> required{};  // what the command needs to get as far as its options
};

std::vector<ListedOption> listed_options() {
  return {
      {{"train"}, "--strategy", strategy_names(), {"mnist"}},
      {{"train"}, "--backend", comm::backend_names(), {"mnist"}},
      {{"train"}, "--optimizer", optimizer_names(), {"mnist"}},
      {{"train"}, "--precision", precision_names(), {"mnist"}},
      {{"train"}, "--matmul-precision", matmul_precision_names(), {"mnist"}},
      {{"train"}, "--loader", loader_engine_names(), {"mnist"}},
      {{"train"}, "--schedule", schedule_names(), {"mnist"}},
      {{"train"}, "--mix", cli::choice_names(cli::mix_choices()), {"mnist"}},
      {{"train"}, "--decoding", cli::choice_names(cli::decoding_choices()), {"mnist"}},
      {{"train"}, "--on-corrupt-image", cli::choice_names(cli::corrupt_image_choices()), {"mnist"}},
      {{"bench", "comm"}, "--backend", comm::backend_names()},
      {{"bench", "comm"}, "--algorithm", algorithm_names()},
      {{"bench", "comm"}, "--collective", bench::bench_call_names()},
      {{"bench", "step"}, "--strategy", strategy_names()},
      {{"bench", "step"}, "--model", cli::step_model_names()},
      {{"bench", "step"}, "--model", cli::strategies_model_names(), {"--strategy", "all"}},
      {{"bench", "step"}, "--parameter-memory", cli::parameter_memory_names()},
      {{"bench", "step"}, "--backend", comm::host_backend_names()},
      {{"bench", "step"}, "--precision", cli::step_precision_names()},
      {{"bench", "step"}, "--optimizer", optimizer_names()},
      {{"bench", "table"}, "--strategies", strategy_names(), {"mnist"}},
      {{"bench", "table"}, "--loaders", loader_engine_names(), {"mnist"}},
      {{"bench", "table"}, "--backend", comm::backend_names(), {"mnist"}},
      {{"bench", "table"}, "--precision", precision_names(), {"mnist"}},
      {{"bench", "loader"}, "--loader", loader_engine_names()},
      {{"bench", "loader"}, "--precision", precision_names()},
      {{"bench", "loader"}, "--operators", cli::choice_names(cli::operator_choices())},
      {{"bench", "loader"}, "--decoding", cli::choice_names(cli::decoding_choices())},
      {{"bench", "loader"}, "--on-corrupt-image", cli::choice_names(cli::corrupt_image_choices())},
      {{"data", "preview"}, "--loader", loader_engine_names(), {"mnist", "--out", "sheet.png"}},
      {{"data", "preview"},
       "--mix",
       cli::choice_names(cli::mix_choices()),
       {"mnist", "--out", "sheet.png"}},
      {{"evaluate"}, "--split", {"validation", "train", "all"}, {"run"}},
      {{"explain", "pipeline"}, "--schedule", schedule_names()},
      {{"program", "draw"}, "--format", cli::choice_names(cli::drawing_formats()), {"net.pt2"}},
      {{"simulate"}, "--strategy", simulate::simulated_strategy_names(), {"run"}},
  };
}

ProgramResult run_command(const ListedOption& listed, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {LOCKSTEP_PROGRAM};
  words.insert(words.end(), listed.command.begin(), listed.command.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_forked(words);
}

// The help of one option, in one line however it is broken. Empty if there is none.
std::string help_of(const std::string& help, const std::string& option) {
  std::istringstream lines(help);
  std::vector<std::string> found;
  bool is_own = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    const std::vector<std::string> words(std::istream_iterator<std::string>(in), {});
    if (line.starts_with("  -")) {
      is_own = words[0] == option || words[0].starts_with(option + ",");
    }
    if (is_own) found.insert(found.end(), words.begin(), words.end());
  }
  return join(found, " ");
}

// A list as it is, or without what parentheses say about its names.
std::string with_and_without_parentheses(const std::string& text) {
  return text + "\n" + std::regex_replace(text, std::regex(R"( \([^)]*\))"), "");
}

TEST(Help, ListsWhatAnOptionTakes) {
  for (const ListedOption& listed : listed_options()) {
    const ProgramResult help = run_command(listed, {"--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(with_and_without_parentheses(help_of(help.out, listed.option)),
                HasSubstr(join(listed.names)))
        << join(listed.command, " ") << ' ' << listed.option;
  }
}

TEST(Help, ListsTheNamesThatARefusalLists) {
  for (const ListedOption& listed : listed_options()) {
    std::vector<std::string> arguments = listed.required;
    arguments.insert(arguments.end(), {listed.option, "?"});
    const ProgramResult result = run_command(listed, arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(join(listed.names)))
        << join(listed.command, " ") << ' ' << listed.option;
  }
}

// A list may be given in parts. If only the last part counted, the first one, which is wrong, would
// pass unnoticed.
TEST(Lists, HaveAllTheirParts) {
  struct PartedOption {
    std::vector<std::string> command;
    std::string option;
    std::string right;
    std::vector<std::string> required{};
  };
  const PartedOption options[] = {
      {{"train"}, "--logger", "csv", {"mnist"}},
      {{"bench", "comm"}, "--collective", "all_reduce"},
      {{"bench", "comm"}, "--algorithm", "ring"},
      {{"bench", "comm"}, "--sizes", "4"},
      {{"bench", "loader"}, "--loader", "native"},
      {{"bench", "loader"}, "--threads", "1"},
      {{"bench", "step"}, "--strategy", "ddp"},
      {{"bench", "step"}, "--bucket-cap-mb", "1"},
      {{"bench", "step"}, "--parameter-memory", "auto"},
      {{"bench", "step"}, "--only", "single", {"--strategy", "all"}},
      {{"bench", "table"}, "--ranks", "1", {"mnist"}},
      {{"bench", "table"}, "--strategies", "ddp", {"mnist"}},
      {{"bench", "table"}, "--loaders", "native", {"mnist"}},
      {{"bench", "table"}, "--kernels", "fused", {"mnist"}},
      {{"bench", "table"}, "--batch-per-rank", "64", {"mnist"}},
      {{"bench", "table"}, "--peer-workers", "1", {"mnist", "--with-peers"}},
      {{"simulate"}, "--ranks", "2", {"run"}},
  };
  for (const PartedOption& each : options) {
    std::vector<std::string> arguments = each.required;
    arguments.insert(arguments.end(), {each.option, "?", each.option, each.right});
    const ProgramResult result = run_command({.command = each.command}, arguments);
    EXPECT_EQ(result.exit_code, 2) << each.option;
    EXPECT_THAT(result.err, HasSubstr("'?")) << join(each.command, " ") << ' ' << each.option;
  }
}

TEST(Help, FitsATerminalAndGroupsTheOptionsOfTraining) {
  const Names commands[] = {{},
                            {"train"},
                            {"run"},
                            {"data"},
                            {"data", "list"},
                            {"data", "get"},
                            {"data", "pack"},
                            {"data", "info"},
                            {"data", "check"},
                            {"data", "preview"},
                            {"predict"},
                            {"evaluate"},
                            {"export"},
                            {"bench"},
                            {"bench", "comm"},
                            {"bench", "loader"},
                            {"bench", "step"},
                            {"bench", "table"},
                            {"program"},
                            {"program", "draw"},
                            {"program", "info"},
                            {"explain"},
                            {"explain", "pipeline"},
                            {"doctor"},
                            {"report"},
                            {"simulate"}};
  for (const Names& command : commands) {
    const ProgramResult result = run_command({.command = command}, {"--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("Usage: lockstep"));
    std::istringstream help(result.out);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100U) << line;
  }
  const std::string help = run_forked({LOCKSTEP_PROGRAM, "train", "--help"}).out;
  std::size_t at = 0;
  for (const char* heading :
       {"\nPositionals:\n  RECIPE (required)", "\n\nOptions:\n  -h,--help",
        "\n\nRecipe:\n  --model", "\n\nStrategy:\n  --strategy", "\n\nProcesses and devices:\n",
        "\n\nLength of the run:\n", "\n\nEvaluation:\n", "\n\nOptimizer:\n  --optimizer",
        "\n\nSchedules:\n", "\n\nComputation:\n  --precision", "\n\nData:\n  --data",
        "\n\nCheckpoints:\n  --out", "\n\nLogs and reports:\n"}) {
    const std::size_t found = help.find(heading, at);
    ASSERT_NE(found, std::string::npos) << heading << help;
    at = found;
  }
  EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
}

// Before all others, and without those of other recipes.
TEST(Help, OfARecipeBeginsWithItsOwnOptions) {
  struct RecipeHelp {
    std::string recipe;
    Names own;
    Names others;
  };
  const RecipeHelp cases[] = {
      {"mnist",
       {"--weights", "--val-fraction", "--cache", "--no-fused-kernels"},
       {"--model", "--image-size", "--decoding", "--memory-format", "--program", "--inputs"}},
      {"program",
       {"--program", "--inputs", "--image-size", "--weights", "--val-fraction", "--decoding"},
       {"--model", "--no-fused-kernels", "--memory-format"}},
      {"classify",
       {"--model", "--program", "--image-size", "--weights", "--val-fraction", "--cache",
        "--memory-format", "--max-image-pixels", "--decoding", "--exif-transpose"},
       {"--no-fused-kernels", "--inputs"}},
      {"resnet50-split",
       {"--weights", "--val-fraction", "--decoding"},
       {"--model", "--no-fused-kernels"}}};
  for (const RecipeHelp& each : cases) {
    for (const Names& words : {Names{each.recipe, "--help"}, Names{"--help", each.recipe}}) {
      const ProgramResult result = run_command({.command = {"train"}}, words);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const std::size_t begin = result.out.find("\n\nOptions of " + each.recipe + ":\n");
      ASSERT_NE(begin, std::string::npos) << result.out;
      const std::size_t end = result.out.find("\n\nStrategy:\n");
      EXPECT_LT(begin, end);
      const std::string own = result.out.substr(begin, end - begin);
      for (const std::string& option : each.own) EXPECT_NE(help_of(own, option), "") << option;
      for (const std::string& option : each.others) {
        EXPECT_EQ(help_of(result.out, option), "") << each.recipe << ' ' << option;
      }
      EXPECT_NE(help_of(result.out, "--max-epochs"), "");
    }
  }
}

// All these messages can occur in `lockstep train`.
TEST(Help, OfTrainingHasEveryFlagThatMessagesOfTheLibraryBecome) {
  const ProgramResult help = run_forked({LOCKSTEP_PROGRAM, "train", "--help"});
  ASSERT_EQ(help.exit_code, 0) << help.err;
  const std::regex flag("--[a-z-]+");
  for (const cli::FlagName& name : cli::flag_names()) {
    const std::string flags(name.flags);
    const std::vector<std::string> words(
        std::sregex_token_iterator(flags.begin(), flags.end(), flag), {});
    EXPECT_FALSE(words.empty()) << name.option;
    for (const std::string& word : words) EXPECT_NE(help_of(help.out, word), "") << word;
  }
}

TEST(Doctor, ListsTheNamesThatOptionsTake) {
  const TemporaryDirectory scratch;
  const std::string file = (scratch / "doctor.json").string();
  const ProgramResult result = run_forked({LOCKSTEP_PROGRAM, "doctor", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  const std::vector<std::pair<std::string, Names>> findings = {{"strategies", strategy_names()},
                                                               {"optimizers", optimizer_names()},
                                                               {"loaders", loader_engine_names()},
                                                               {"precisions", precision_names()}};
  for (const auto& [key, names] : findings) {
    EXPECT_EQ(json.at(key), nlohmann::json(names)) << key;
    const std::string end = key == "loaders" ? " (" : "\n";  // what a loader needs
    EXPECT_THAT(result.out,
                HasSubstr("\n" + key + std::string(12 - key.size(), ' ') + join(names) + end));
  }
}

TEST(Doctor, SaysWhatIsSlowHere) {
  const TemporaryDirectory scratch;
  const std::string file = (scratch / "doctor.json").string();
  const ProgramResult result = run_forked({LOCKSTEP_PROGRAM, "doctor", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Names slow =
      nlohmann::json::parse(std::ifstream(file)).at("slow").at("precisions").get<Names>();
  EXPECT_THAT(slow, testing::Contains("16"));
  const std::string with_bfloat16 = slow.size() == 1 ? "" : "--precision bf16: bfloat16 is 5 to ";
  EXPECT_THAT(result.out, HasSubstr("\nslow        " + with_bfloat16));
  EXPECT_THAT(result.out, HasSubstr("--precision 16: float16 is slower than float32 on a CPU\n"));
}

TEST(Doctor, SaysWhoStartedIt) {
  const TemporaryDirectory scratch;
  const std::string file = (scratch / "doctor.json").string();
  const auto launcher = [&](const Environment& environment, const std::string& text) {
    const ProgramResult result =
        run_forked({LOCKSTEP_PROGRAM, "doctor", "--json", file}, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("\nlauncher    " + text));
    return nlohmann::json::parse(std::ifstream(file)).at("launcher");
  };
  Environment environment = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"}};
  EXPECT_EQ(launcher(environment, "torchrun: rank 1 of 4\n"),
            (nlohmann::json{{"source", "torchrun"}, {"rank", 1}, {"world_size", 4}}));
  environment["RANK"] = "4";
  EXPECT_TRUE(launcher(environment, "unusable: RANK=4 contradicts WORLD_SIZE=4").is_null());
}

// Programs without LibTorch have tables of their own for what they can do.
TEST(Help, OfAComparisonOrAPredictionNamesWhatTrainKnows) {
  EXPECT_THAT(cli::step_strategy_names(), IsSubsetOf(strategy_names()));
  EXPECT_THAT(cli::step_precision_names(), IsSubsetOf(precision_names()));
  EXPECT_THAT(simulate::simulated_strategy_names(), IsSubsetOf(strategy_names()));
  std::set<std::string> strategies;
  for (const bench::StrategyWay& way :
       bench::strategy_ways({.threads = 8, .batch = 64, .micro_batches = 8})) {
    strategies.insert(way.strategy);
  }
  EXPECT_THAT(strategies, testing::UnorderedElementsAreArray(strategy_names()));
}

}  // namespace
}  // namespace lockstep::testing_support
