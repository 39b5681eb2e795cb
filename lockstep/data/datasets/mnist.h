// MNIST, and other data sets in the same format: an IDX file of images and one of labels.
#pragma once

#include <filesystem>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from `directory`, plain (mapped, not copied)
/// or with .gz (unpacked into memory). Images are grey, in ten classes. Throws a DataError that
/// names the file if one is missing or damaged or has the wrong type, the counts of images and
/// labels differ, or a label is not 0 to 9.
LOCKSTEP_API ImageDataset load_mnist(const std::filesystem::path& directory, Split split);

/// Checks whether load_mnist() is likely to return images of `shape`, without unpacking anything.
/// Throws a DataError that names the file if one is missing or its size does not match such images
/// or their labels.
LOCKSTEP_API void check_mnist(const std::filesystem::path& directory, Split split,
                              const ImageShape& shape);

}  // namespace lockstep
