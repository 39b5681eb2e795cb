// Named tensors in files that stay mapped, so that the ranks of a host share their memory. The
// first dimension of each counts the samples.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/file.h>
#include <lockstep/data/datasets/batch_dataset.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/program/graph/signature.h>

namespace lockstep::recipes {

struct MappedTensor {
  TensorView view{};
  std::shared_ptr<const MappedFile> file{};
  std::string path{};  ///< where the file is
};
using MappedTensors = std::map<std::string, MappedTensor>;

/// Maps the tensors of a .safetensors file, or the arrays of a folder's .npy files, which are named
/// after the files without ".npy". Throws DataError and CheckpointError, which begin with the path,
/// if a file cannot be read or is damaged, and ConfigError if the folder has no such file.
MappedTensors map_tensors(const std::filesystem::path& path);

/// The samples of `tensors` as batches with a tensor for each of `inputs`, in their order. Integers
/// are widened to the type of the input; all other types must be equal. `program` is the file of
/// the program that takes the inputs, and `path` that of the tensors, for messages. Throws
/// ConfigError unless there is exactly one tensor for each input, with its type and shape, and all
/// have the same number of samples, at least one.
std::shared_ptr<const BatchDataset<Tensors>> tensor_rows(
    const MappedTensors& tensors, const std::vector<program::TensorSignature>& inputs,
    const std::string& program, const std::string& path);

/// The samples of `dataset` at `indices`.
std::shared_ptr<const BatchDataset<Tensors>> subset_of_rows(
    std::shared_ptr<const BatchDataset<Tensors>> dataset, std::vector<std::int64_t> indices);

}  // namespace lockstep::recipes
