// The option --mix, common to several commands.
#pragma once

#include <string>

#include <lockstep/core/options.h>
#include <lockstep/data/augment/mix_choice.h>

namespace lockstep {

/// ConfigError, beginning with `command`, for a word other than the four.
inline BatchMix parse_mix_option(const std::string& command, const std::string& word) {
  OptionCheck(command).one_of("--mix", word, {"none", "mixup", "cutmix", "random"});
  if (word == "mixup") return MixUp{};
  if (word == "cutmix") return CutMix{};
  if (word == "random") return RandomMix{};
  return {};
}

}  // namespace lockstep
