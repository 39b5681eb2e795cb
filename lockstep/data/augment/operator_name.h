// The name of an operator in messages.
#pragma once

#include <iterator>
#include <string>
#include <variant>

#include <lockstep/data/augment/augment.h>

namespace lockstep::data {

/// The name of the operator's type, such as "RandomCrop".
inline std::string operator_name(const Operator& op) {
  constexpr const char* kNames[] = {"Pad",
                                    "RandomCrop",
                                    "CenterCrop",
                                    "Resize",
                                    "RandomResizedCrop",
                                    "RandomHorizontalFlip",
                                    "RandomVerticalFlip",
                                    "RandomRotation",
                                    "ColorJitter",
                                    "Grayscale",
                                    "RandomGrayscale",
                                    "Cutout",
                                    "RandomErasing",
                                    "Normalize"};
  static_assert(std::size(kNames) == std::variant_size_v<Operator>);
  return kNames[op.index()];
}

}  // namespace lockstep::data
