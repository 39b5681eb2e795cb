// CIFAR-10 in its binary version.
#pragma once

#include <filesystem>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// Selects the batches to read. If the available test images are not the official ones, train
/// without batch 5 and evaluate on it for an unbiased accuracy.
enum class Cifar10Split {
  kTrain,                ///< data_batch_1 to 5, 50,000 images
  kTest,                 ///< test_batch, 10,000 images
  kTrainWithoutHeldOut,  ///< data_batch_1 to 4, 40,000 images
  kHeldOut,              ///< data_batch_5, 10,000 images
};

/// Reads data_batch_N.bin or test_batch.bin from `directory` or its subfolder cifar-10-batches-bin,
/// plain (mapped, not copied) or with .gz: 3x32x32, ten classes. DataError, naming the file, when
/// one is missing, is not exactly 10,000 records, or holds a label above 9.
ImageDataset load_cifar10(const std::filesystem::path& directory, Cifar10Split split);

/// Checks whether load_cifar10() is likely to succeed, without unpacking anything. Throws a
/// DataError that names the file if one is missing or does not have the size of 10,000 records.
void check_cifar10(const std::filesystem::path& directory, Cifar10Split split);

}  // namespace lockstep
