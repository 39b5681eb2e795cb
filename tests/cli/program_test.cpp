#include <lockstep/cli/program.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>

namespace lockstep::cli {
namespace {

void fail_as(const std::string& what) {
  if (what == "config") throw ConfigError("unknown recipe 'x'");
  if (what == "data") throw DataError("file y is truncated");
  if (what == "option") throw ConfigError("no GPU; set LoaderOptions::engine to native");
  if (what == "rank's option") throw CommandFailure(1, "rank 1: remove TrainerOptions::resume");
  if (what == "torch") throw std::runtime_error("size mismatch\nframe #0: somewhere");
  if (what == "memory") throw std::bad_alloc();
  if (what == "rank") throw CommandFailure(1, "rank 1: broken", "broken\nframe #0");
  if (what == "interrupt") throw CommandFailure(130, "interrupted by signal 2 (Interrupt)");
  if (what == "secret") throw DataError("cannot reach 'http://ada:secret@host'");
  if (what == "rank's secret")
    throw CommandFailure(1, "rank 1: https://t0ken@host", "https://t0ken@host");
  if (what == "silent") throw CommandFailure(7, "");
}

// A subcommand for tests that succeeds or fails depending on its argument.
void add_try_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("try", "Try something");
  const auto what = std::make_shared<std::string>();
  const auto epochs = std::make_shared<int>(1);
  command->add_option("WHAT", *what, "What to try")->required();
  const auto betas = std::make_shared<std::pair<double, double>>();
  command->add_option("--max-epochs", *epochs, "How often");
  command->add_option("--betas", *betas, "Two numbers");
  command->callback([what, epochs, betas] { fail_as(*what); });
}

// Subcommands that print their options, at both levels of nesting.
void add_show_command(CLI::App& app) {
  const auto add_options = [](CLI::App* command) {
    struct Values {
      int number = 1;
      std::optional<std::string> word;
      std::string list = "a";
      std::vector<std::string> words;
      bool flag = false;
    };
    const auto values = std::make_shared<Values>();
    command->add_option("--number", values->number, "")->transform(whole_number<int>());
    command->add_option("--word", values->word, "");
    command->add_option("--list", values->list, "")->capture_default_str();
    command->add_option("--words", values->words, "")->allow_extra_args(false);
    command->add_flag("--flag", values->flag, "");
    collect_values(*command, {"--list"});
    for (CLI::Option* option : command->get_options()) option->check(not_empty());
    command->callback([values] {
      throw CommandFailure(3, str(values->number, " ", values->word.value_or("none"), " ",
                                  values->list, " ", join(values->words, "+"), " ", values->flag));
    });
  };
  add_options(app.add_subcommand("show", "Show options"));
  CLI::App* outer = app.add_subcommand("outer", "Has a subcommand");
  add_options(outer->add_subcommand("show", "Show options"));
}

struct Outcome {
  int exit_code;
  std::string out, err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lockstep");
  std::ostringstream out, err;
  const int code = run_program(static_cast<int>(arguments.size()), arguments.data(), "lockstep 1.2",
                               {&add_try_command, &add_show_command}, out, err);
  return {code, out.str(), err.str()};
}

// A source tree without Git and without the file COMMIT has no commit.
TEST(Program, NamesItsCommitIfItHasOne) {
  EXPECT_EQ(version_text("1.2", "3d2b643a1f00", "2.11.0"),
            "lockstep 1.2 (commit 3d2b643a1f00, LibTorch 2.11.0)");
  EXPECT_EQ(version_text("1.2", "", "2.11.0"), "lockstep 1.2 (LibTorch 2.11.0)");
}

TEST(Program, TakesTheLastValueOfAnOptionAndAllOfAList) {
  struct Case {
    std::vector<const char*> options;
    const char* err;
  };
  const Case cases[] = {
      {{}, "error: 1 none a  0\n"},
      {{"--number", "2", "--word", "x", "--number=3", "--word=y"}, "error: 3 y a  0\n"},
      {{"--word", "x", "--number", "4", "--word", "z", "--word", "x"}, "error: 4 x a  0\n"},
      {{"--list", "b"}, "error: 1 none b  0\n"},
      {{"--list", "b,c", "--list=d"}, "error: 1 none b,c,d  0\n"},
      {{"--words", "b", "--words", "c"}, "error: 1 none a b+c 0\n"},
      {{"--flag", "--flag"}, "error: 1 none a  1\n"},
      {{"--number", "x", "--number", "3"},
       "error: --number: must be a whole number, got 'x': see lockstep show --help\n"},
      {{"--number", "3", "--number=99999999999"},
       "error: --number: must be a whole number, got '99999999999', which does not fit: see "
       "lockstep show --help\n"},
      {{"--number=010"}, "error: 10 none a  0\n"},
      {{"--number=-3"}, "error: -3 none a  0\n"},
      {{"--list", "b", "--list", ""},
       "error: --list: must not be empty: see lockstep show --help\n"},
      {{"--list", "", "--list", "b"},
       "error: --list: must not be empty: see lockstep show --help\n"},
  };
  for (const Case& c : cases) {
    std::vector<const char*> words = {"show"};
    words.insert(words.end(), c.options.begin(), c.options.end());
    EXPECT_EQ(run(words).err, c.err);
    if (std::string(c.err).find("--help") != std::string::npos) continue;
    words.insert(words.begin(), "outer");
    EXPECT_EQ(run(words).err, c.err);
  }
}

// What whole_number() makes of a text: the number in decimal, or why it is none.
template <class Integer>
std::string whole_number_text(std::string text) {
  const std::string problem = whole_number<Integer>()(text);
  return problem.empty() ? text : problem;
}

TEST(Program, TakesWholeNumbersThatFit) {
  EXPECT_EQ(whole_number_text<int>("2147483647"), "2147483647");
  EXPECT_EQ(whole_number_text<int>("-2147483648"), "-2147483648");
  EXPECT_EQ(whole_number_text<int>("2147483648"),
            "must be a whole number, got '2147483648', which does not fit");
  EXPECT_EQ(whole_number_text<int>("-2147483649"),
            "must be a whole number, got '-2147483649', which does not fit");
  EXPECT_EQ(whole_number_text<std::int64_t>("4294967297"), "4294967297");
  EXPECT_EQ(whole_number_text<std::int64_t>("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(whole_number_text<std::int64_t>("9223372036854775808"),
            "must be a whole number, got '9223372036854775808', which does not fit");
  EXPECT_EQ(whole_number_text<std::uint64_t>("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(whole_number_text<std::uint64_t>("18446744073709551616"),
            "must be a whole number of at least 0, got '18446744073709551616', which does not fit");
  EXPECT_EQ(whole_number_text<std::uint64_t>("-1"),
            "must be a whole number of at least 0, got '-1'");
  EXPECT_EQ(whole_number_text<int>("-010"), "-10");
  for (const char* text : {"", " ", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "1,000", "--1", "-"}) {
    EXPECT_EQ(whole_number_text<int>(text), str("must be a whole number, got '", text, "'"));
  }
}

TEST(Program, TurnsFailuresIntoOneLineAndACode) {
  struct Case {
    std::vector<const char*> arguments;
    int exit_code;
    const char* err;
  };
  const Case cases[] = {
      {{"try", "nothing"}, 0, ""},
      {{"try", "config"}, 2, "error: unknown recipe 'x'\n"},
      {{"try", "data"}, 1, "error: file y is truncated\n"},
      {{"try", "secret"}, 1, "error: cannot reach 'http://***@host'\n"},
      {{"--debug", "try", "secret"}, 1, "error: cannot reach 'http://***@host'\n"},
      {{"try", "rank's secret"}, 1, "error: rank 1: https://***@host\n"},
      {{"--debug", "try", "rank's secret"}, 1, "error: https://***@host\n"},
      {{"try", "nothing", "http://ada:secret@host"},
       2,
       "error: unexpected argument 'http://***@host' of lockstep try: see lockstep try --help\n"},
      {{"try", "torch"}, 1, "error: size mismatch\n"},
      {{"try", "option"}, 2, "error: no GPU; set --loader to native\n"},
      {{"try", "option", "--debug"}, 2, "error: no GPU; set --loader to native\n"},
      {{"try", "rank's option"}, 1, "error: rank 1: remove --resume\n"},
      {{"try", "rank's option", "--debug"}, 1, "error: rank 1: remove --resume\n"},
      {{"--debug", "try", "torch"}, 1, "error: size mismatch\nframe #0: somewhere\n"},
      {{"try", "torch", "--debug"}, 1, "error: size mismatch\nframe #0: somewhere\n"},
      {{"try", "memory"}, 1, "error: out of memory\n"},
      {{"try", "rank"}, 1, "error: rank 1: broken\n"},
      {{"try", "rank", "--debug"}, 1, "error: broken\nframe #0\n"},
      {{"try", "interrupt"}, 130, "error: interrupted by signal 2 (Interrupt)\n"},
      {{"try", "silent"}, 7, ""},
      {{}, 2, "error: lockstep needs a command (try, show, outer): see lockstep --help\n"},
      {{"tyr", "data"}, 2, "error: unknown command 'tyr'; did you mean 'try'?\n"},
      {{"export"}, 2, "error: unknown command 'export': see lockstep --help\n"},
      {{"--verison"},
       2,
       "error: unknown option '--verison' of lockstep; did you mean '--version'?\n"},
      {{"try"}, 2, "error: WHAT is required: see lockstep try --help\n"},
      {{"try", "data", "--epochs", "3"},
       2,
       "error: unknown option '--epochs' of lockstep try; did you mean '--max-epochs'?\n"},
      {{"try", "--epochs=3"},
       2,
       "error: unknown option '--epochs' of lockstep try; did you mean '--max-epochs'?\n"},
      {{"try", "data", "--nonsense"},
       2,
       "error: unknown option '--nonsense' of lockstep try: see lockstep try --help\n"},
      {{"--max-epochs", "1", "try", "data"},
       2,
       "error: --max-epochs is an option of lockstep try: write it after 'try'\n"},
      {{"--debg", "try", "data"},
       2,
       "error: unknown option '--debg' of lockstep; did you mean '--debug'?\n"},
      {{"help", "try"}, 2, "error: unknown command 'help': see lockstep --help\n"},
      {{"try", "data", "more"},
       2,
       "error: unexpected argument 'more' of lockstep try: see lockstep try --help\n"},
      {{"try", "data", "--max-epochs", "few"},
       2,
       "error: --max-epochs: must be a number, got 'few': see lockstep try --help\n"},
      {{"try", "data", "--max-epochs"},
       2,
       "error: --max-epochs needs a value: see lockstep try --help\n"},
      {{"try", "data", "--betas", "0.9", "--max-epochs", "3"},
       2,
       "error: --betas needs 2 values: see lockstep try --help\n"},
      {{"try", "data", "--betas", "0.9", "--max-epochs", "-3"},
       2,
       "error: --betas needs 2 values: see lockstep try --help\n"},
      {{"try", "data", "--max-epochs", "--betas", "0.9", "1"},
       2,
       "error: --max-epochs needs a value: see lockstep try --help\n"},
  };
  for (const Case& expected : cases) {
    std::string trace;
    for (const char* argument : expected.arguments) trace += std::string(argument) + " ";
    SCOPED_TRACE(trace);
    const Outcome outcome = run(expected.arguments);
    EXPECT_EQ(outcome.exit_code, expected.exit_code);
    EXPECT_EQ(outcome.err, expected.err);
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Program, PrintsItsVersionAndHelp) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, "lockstep 1.2\n");
  const Outcome help = run({"try", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("--max-epochs"), std::string::npos) << help.out;
  EXPECT_EQ(help.err, "");
}

}  // namespace
}  // namespace lockstep::cli
