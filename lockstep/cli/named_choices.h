// Options that take one of a few words. A single table has the words, their values, and their
// meanings for --help.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {

template <class Value>
struct NamedChoice {
  std::string name;
  Value value;
  std::string meaning{};  ///< empty: the name is clear by itself
};

template <class Value>
using NamedChoices = std::vector<NamedChoice<Value>>;

template <class Value>
std::vector<std::string> choice_names(const NamedChoices<Value>& choices) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.name);
  return names;
}

/// "exact (at full size), scaled (at a half)".
template <class Value>
std::string choices_text(const NamedChoices<Value>& choices) {
  std::vector<std::string> parts;
  for (const auto& choice : choices) {
    parts.push_back(choice.meaning.empty() ? choice.name
                                           : choice.name + " (" + choice.meaning + ")");
  }
  return join(parts);
}

/// The value of the choice that `word` names. Throws ConfigError, which names `command` and
/// `option`, if there is none.
template <class Value>
Value chosen_value(const std::string& command, const std::string& option,
                   const NamedChoices<Value>& choices, const std::string& word) {
  for (const auto& choice : choices) {
    if (choice.name == word) return choice.value;
  }
  OptionCheck(command).one_of(option, word, choice_names(choices));
  throw InternalError(str(command, ": ", option, " lacks a value for '", word, "'"));
}

}  // namespace lockstep::cli
