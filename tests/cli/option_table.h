// Checks that each option of a command reaches its own field.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <lockstep/core/strings.h>

namespace lockstep::testing_support {

template <class Arguments>
struct OptionCase {
  /// An option with a value that is not its default, or the value of a positional.
  std::vector<std::string> words;
  std::function<void(Arguments&)> change;  ///< what these words change in the default arguments
};

/// Names of the options of `command` except --help, in the order of their declarations; positionals
/// by their names.
inline std::vector<std::string> option_names(CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    if (option->get_positional()) names.push_back(option->get_name(/*positional=*/true));
  }
  return names;
}

/// Parses each case alone, with the options that `add_options` declares, and expects that it
/// changes its own field and nothing else. Every name of an option needs a case, and the cases
/// stand in the order of the declarations, which is that of the help within a group.
template <class Arguments, class Equal = std::equal_to<>>
void expect_own_fields(void (*add_options)(CLI::App&, Arguments&),
                       const std::vector<OptionCase<Arguments>>& cases, const Equal& equal = {}) {
  std::vector<std::string> declared;
  std::vector<std::string> tested;
  for (const OptionCase<Arguments>& each : cases) {
    CLI::App command;
    command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as usual
    Arguments given;
    add_options(command, given);
    for (CLI::Option* option : command.get_options()) option->required(false);
    std::vector<std::string> words(each.words.rbegin(), each.words.rend());  // as CLI11 wants them
    const std::string text = join(each.words, " ");
    ASSERT_NO_THROW(command.parse(words)) << text;
    Arguments expected;
    EXPECT_FALSE(equal(given, expected)) << text << " changes nothing";
    each.change(expected);
    EXPECT_TRUE(equal(given, expected)) << text;
    declared = option_names(command);
    if (each.words.front().starts_with("--")) {
      tested.push_back(each.words.front());
      continue;
    }
    for (const CLI::Option* option : command.get_options()) {
      if (option->count() > 0) tested.push_back(option->get_name(/*positional=*/true));
    }
  }
  EXPECT_EQ(tested, declared);
}

}  // namespace lockstep::testing_support
