// An augmentation as text, for the record of a run.
#pragma once

#include <string>

#include <lockstep/data/augment/augment.h>

namespace lockstep::data {

/// The operators in their order, with their arguments: "Pad(4, fill 0), RandomCrop(32x32)". Equal
/// texts mean equal augmentations, up to the rounding of numbers to six digits.
std::string augmentation_text(const Augmentation& operators);

}  // namespace lockstep::data
