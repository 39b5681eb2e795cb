// CIFAR-10 in its binary version.
#pragma once

#include <filesystem>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// Reads data_batch_1.bin to data_batch_5.bin (kTrain: 50,000 images, in the order of the files) or
/// test_batch.bin (kTest: 10,000 images) from `directory` or its subfolder cifar-10-batches-bin,
/// plain (mapped, not copied) or with .gz. Images are 3x32x32, in ten classes. Throws a DataError
/// that names the file if one is missing, does not hold exactly 10,000 records, or holds a label
/// above 9.
///
/// If the available test images are not the official ones, train on a subset() or random_split() of
/// the training images and evaluate on the others for an unbiased accuracy.
LOCKSTEP_API ImageDataset load_cifar10(const std::filesystem::path& directory, Split split);

/// Checks whether load_cifar10() is likely to succeed, without unpacking anything. Throws a
/// DataError that names the file if one is missing or does not have the size of 10,000 records.
LOCKSTEP_API void check_cifar10(const std::filesystem::path& directory, Split split);

}  // namespace lockstep
