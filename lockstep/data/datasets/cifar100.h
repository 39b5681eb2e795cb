// CIFAR-100 in its binary version.
#pragma once

#include <filesystem>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

enum class Cifar100Labels {
  kFine,    ///< 100 classes, as in torchvision's CIFAR100
  kCoarse,  ///< 20 superclasses of five classes each
};

/// Reads train.bin (50,000 images) or test.bin (10,000) from `directory` or its subfolder
/// cifar-100-binary, plain (mapped, not copied) or with .gz. Images are 3x32x32. Throws a DataError
/// that names the file if it is missing, does not hold exactly that number of records, or holds a
/// label out of range.
LOCKSTEP_API ImageDataset load_cifar100(const std::filesystem::path& directory, Split split,
                                        Cifar100Labels labels = Cifar100Labels::kFine);

}  // namespace lockstep
