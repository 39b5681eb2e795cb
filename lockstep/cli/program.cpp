#include <lockstep/cli/program.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <exception>
#include <optional>

#include <CLI/CLI.hpp>

#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/core/credentials.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/launch/failure_report.h>
#include <lockstep/report/output.h>

namespace lockstep::cli {
namespace {

// The innermost subcommand named by the arguments.
const CLI::App& current_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

std::vector<std::string> option_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  }
  return words;
}

std::vector<std::string> subcommand_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(sub->get_name());
  }
  return words;
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

std::string sentence(std::string text) {
  text = text.substr(0, text.find('\n'));
  // CLI11's messages begin with a capital; Lockstep's follow "error: ". Words in capitals are
  // names.
  if (text.size() > 1 && !std::isupper(static_cast<unsigned char>(text[1]))) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

// The command whose words include words[at]: the innermost one that is named before it.
const CLI::App& command_of_word(const CLI::App& app, const std::vector<std::string>& words,
                                std::size_t at) {
  const CLI::App* command = &app;
  for (std::size_t i = 0; i < at; ++i) {
    if (const CLI::App* const sub = find_subcommand(*command, words[i])) command = sub;
  }
  return *command;
}

// The names of subcommands called `word` inside those of `command`: "data get" for get.
std::vector<std::string> inner_commands(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const std::string& outer : subcommand_words(command)) {
    if (find_subcommand(*find_subcommand(command, outer), word))
      names.push_back(outer + " " + word);
  }
  return names;
}

// CLI11's text after `prefix`, or nothing if it begins otherwise.
std::optional<std::string> after(const std::string& text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

// The option that has too few values according to the error; null for other errors. CLI11 takes the
// next option for a value: "Could not convert: --betas = 0.9,--lr".
const CLI::Option* option_without_value(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (text.ends_with(" missing")) {
    return command.get_option_no_throw(text.substr(0, text.find(':')));
  }
  const auto given = after(text, "Could not convert: ");
  if (!given || given->substr(given->find_last_of(" ,") + 1).substr(0, 2) != "--") return nullptr;
  return command.get_option_no_throw(given->substr(0, given->find(' ')));
}

// The message about an error that no unknown word has caused.
std::string missing_or_wrong(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> subcommands = subcommand_words(command);
  if (!subcommands.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return str(full_name(command), " needs a command (", join(subcommands), ")");
  }
  if (const CLI::Option* const option = option_without_value(command, error)) {
    const int values = option->get_items_expected_min();
    return option->get_name() +
           (values == 1 ? " needs a value" : str(" needs ", values, " values"));
  }
  const std::string text = sentence(error.what());
  if (const auto given = after(text, "could not convert: ")) {  // "--lr = 0,1"
    const std::size_t equals = given->find(" = ");
    if (equals != std::string::npos) {
      return str(given->substr(0, equals), ": must be a number, got '", given->substr(equals + 3),
                 "'");
    }
  }
  return text;
}

// The message about words[at], which no command knows.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words,
                         std::size_t at) {
  const CLI::App& command = command_of_word(app, words, at);
  const std::string name = full_name(command);
  const std::string word = words[at].substr(0, words[at].find('='));
  std::string hint;
  std::string text;
  if (word.size() > 1 && word[0] == '-') {
    const CLI::App& inner = current_command(app);
    if (&inner != &command && inner.get_option_no_throw(word) != nullptr) {
      return str(word, " is an option of ", full_name(inner), ": write it after '",
                 inner.get_name(), "'");
    }
    text = "unknown option '" + word + "' of " + name;
    hint = did_you_mean(word, option_words(command));
  } else if (!subcommand_words(command).empty()) {
    text = "unknown command '" + word + "'";
    hint = did_you_mean(word, subcommand_words(command));
    if (hint.empty()) hint = did_you_mean(word, inner_commands(command, word));
  } else {
    text = "unexpected argument '" + word + "' of " + name;
    // Other tools name the checkpoint there.
    if (at > 0 && words[at - 1] == "--resume" && command.get_option_no_throw("--out") != nullptr) {
      hint = "; --resume takes no folder: give --out " + word + " --resume";
    }
  }
  return text + (hint.empty() ? ": see " + name + " --help" : hint);
}

bool is_negative_number(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (std::isdigit(static_cast<unsigned char>(word[1])) || word[1] == '.');
}

// CLI11 reports missing arguments before unknown ones; for users the unknown ones matter more.
std::string usage_error(const CLI::App& app, std::vector<std::string> words,
                        const CLI::ParseError& error) {
  const CLI::App& command = current_command(app);
  std::vector<std::string> unknown = app.remaining(true);
  // Arguments of the program that the command starts are not checked.
  if (command.get_prefix_command() && !unknown.empty() && !unknown[0].starts_with('-'))
    unknown = {};
  // After `--betas 0.9 --lr 0.1`, CLI11 does not know what 0.1 belongs to.
  const bool is_rest = !unknown.empty() && option_without_value(command, error) != nullptr &&
                       (!unknown[0].starts_with('-') || is_negative_number(unknown[0]));
  if (unknown.empty() || is_rest) {
    return missing_or_wrong(command, error) + ": see " + full_name(command) + " --help";
  }
  words.push_back(unknown.front());  // found if CLI11 has changed the word
  const auto place = std::find(words.begin(), words.end(), unknown.front());
  return unknown_word(app, words, static_cast<std::size_t>(place - words.begin()));
}

struct Failure {
  int exit_code = 1;
  std::string line;
  std::string details;
};

// Describes the exception being handled.
Failure describe(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const CommandFailure*>(&error)) {
    return {failure->exit_code(), with_flags(failure->what()),
            with_flags(failure->details().empty() ? failure->what() : failure->details())};
  }
  const launch::FailureReport report = launch::describe_failure(std::current_exception());
  return {report.exit_code, error_line(error), with_flags(report.text)};
}

bool takes_value(const CLI::App& command, const std::string& word) {
  const CLI::Option* const option = command.get_option_no_throw(word.substr(0, word.find('=')));
  return option != nullptr && option->get_items_expected_min() > 0 &&
         word.find('=') == std::string::npos;
}

// In `run --nproc-per-node 2 -- PROGRAM` the "--" ends Lockstep's options. CLI11 would pass what
// follows to the parent of a prefix command.
std::vector<std::string> without_mark_before_program(const CLI::App& app,
                                                     std::vector<std::string> words) {
  const CLI::App* command = nullptr;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (command != nullptr && *word == "--") {
      words.erase(word);
      return words;
    }
    if (word->starts_with('-')) {
      if (command != nullptr && takes_value(*command, *word) && ++word == words.end()) break;
    } else if (command == nullptr) {
      command = find_subcommand(app, *word);
      if (command == nullptr || !command->get_prefix_command()) break;
    } else {
      break;  // PROGRAM
    }
  }
  return words;
}

// Joins an option with its optional value: `--resume auto` becomes `--resume=auto`. Such an option
// is a flag whose type name is the value in brackets. CLI11's own optional values take any next
// word, such as RECIPE in `train --resume mnist`.
std::vector<std::string> with_optional_values(const CLI::App& app, std::vector<std::string> words) {
  const CLI::App* command = &app;
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != "--"; ++i) {
    if (const CLI::App* const sub = find_subcommand(*command, words[i])) command = sub;
    if (command->get_prefix_command()) break;
    const CLI::Option* const option = command->get_option_no_throw(words[i]);
    if (option == nullptr || option->get_type_name() != "[" + words[i + 1] + "]") continue;
    words[i] += "=" + words[i + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return words;
}

// CLI11 treats --help and --version as errors.
void parse_and_run(CLI::App& app, int argc, const char* const* argv, std::ostream& out,
                   std::ostream& err) {
  std::vector<std::string> words =
      with_optional_values(app, without_mark_before_program(app, {argv + 1, argv + argc}));
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw;
    app.exit(error, out, err);
  }
  report::flush_output(out);
}

}  // namespace

std::string version_text(const std::string& version, const std::string& commit,
                         const std::string& libtorch) {
  return str("lockstep ", version, " (", commit.empty() ? "" : "commit " + commit + ", ",
             "LibTorch ", libtorch, ")");
}

int run_program(int argc, const char* const* argv, const std::string& version,
                const std::vector<AddCommand>& commands, std::ostream& out, std::ostream& err) {
  CLI::App app("Distributed training for LibTorch", "lockstep");
  app.formatter(std::make_shared<HelpFormat>());  // also of the subcommands
  bool debug = false;
  app.add_flag("--debug", debug, "Print full details of an error, including backtraces");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  // As in most programs, so that a script can append to the options that it was given. Commands
  // inherit this; lists keep all their values (collect_values()).
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const AddCommand add : commands) add(app);
  // Allows global options after the subcommand, too.
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_prefix_command()) command->fallthrough();
  }
  try {
    parse_and_run(app, argc, argv, out, err);
    return 0;
  } catch (const CLI::ParseError& error) {
    err << "error: " << without_credentials(usage_error(app, {argv + 1, argv + argc}, error))
        << std::endl;
    return 2;
  } catch (const std::exception& error) {
    const Failure failure = describe(error);
    const std::string& text = debug ? failure.details : failure.line;
    if (!failure.line.empty()) err << "error: " << without_credentials(text) << std::endl;
    return failure.exit_code;
  }
}

}  // namespace lockstep::cli
