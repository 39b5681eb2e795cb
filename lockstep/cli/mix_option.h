// The option --mix, common to several commands.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/named_choices.h>
#include <lockstep/data/augment/mix_choice.h>

namespace lockstep::cli {

inline const NamedChoices<BatchMix>& mix_choices() {
  static const NamedChoices<BatchMix> choices = {
      {"none", BatchMix{}},
      {"mixup", MixUp{}},
      {"cutmix", CutMix{}},
      {"random", RandomMix{}, "mixup or cutmix, drawn for each batch"}};
  return choices;
}

/// `what` says what is mixed, such as "Mix the images of a batch".
inline void add_mix_option(CLI::App& command, std::string& to, const std::string& what) {
  command.add_option("--mix", to, what + ": " + choices_text(mix_choices()))->capture_default_str();
}

/// Throws ConfigError, beginning with `command`, if `word` is unknown.
inline BatchMix parse_mix_option(const std::string& command, const std::string& word) {
  return chosen_value(command, "--mix", mix_choices(), word);
}

}  // namespace lockstep::cli
