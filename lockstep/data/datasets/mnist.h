// MNIST, and whatever else comes as the same pair of IDX files.
#pragma once

#include <filesystem>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from `directory`, plain (mapped, not copied)
/// or with .gz (unpacked into memory): grey images, ten classes. DataError, naming the file, when
/// one is missing, damaged or mislabelled, the counts of images and labels differ, or a label is
/// not 0 to 9.
ImageDataset load_mnist(const std::filesystem::path& directory, Split split);

/// Whether load_mnist() is likely to give images of `shape`, without unpacking anything: DataError,
/// naming the file, when one is missing or its size is not that of such images or of their labels.
void check_mnist(const std::filesystem::path& directory, Split split, const ImageShape& shape);

}  // namespace lockstep
