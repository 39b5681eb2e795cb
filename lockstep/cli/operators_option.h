// The option --operators of commands about loading: which augmentation to apply to the images.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/named_choices.h>

namespace lockstep::cli {

enum class OperatorList { kRecipe, kNormalize, kCropFlip, kCropFlipCutout, kRandomResizedCrop };

inline const NamedChoices<OperatorList>& operator_choices() {
  static const NamedChoices<OperatorList> choices = {
      {"recipe", OperatorList::kRecipe, "what `lockstep train` does to these images"},
      {"normalize", OperatorList::kNormalize},
      {"crop-flip", OperatorList::kCropFlip},
      {"crop-flip-cutout", OperatorList::kCropFlipCutout},
      {"random-resized-crop", OperatorList::kRandomResizedCrop, "with a flip"}};
  return choices;
}

inline void add_operators_option(CLI::App& command, std::optional<std::string>& to) {
  command.add_option("--operators", to,
                     "Augmentation: " + choices_text(operator_choices()) +
                         "; default: the recipe's, or without a recipe crop-flip for a known data "
                         "set and random-resized-crop for other data");
}

}  // namespace lockstep::cli
