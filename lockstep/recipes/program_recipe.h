// Recipes whose model is an exported program (room `program`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/program/graph/signature.h>
#include <lockstep/program/program.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

/// The largest number of stages that a program may be cut into; split() knows whether it can.
inline constexpr int kMostStagesOfPrograms = 256;

/// Selects a tensor from all that a program returns.
using ProgramResult = const torch::Tensor& (*)(const ProgramOutput& output);
/// Cuts `net` into `count` stages, of which the last one returns only the tensor that `result`
/// selects.
std::vector<pipeline::StageModule> cut_program(const Program& net, int count, ProgramResult result);

/// The size of the images that a program takes. If the export has not fixed it, their side is
/// `size`, or else `default_size`. Throws ConfigError, which begins with `owner` and the path,
/// unless they are float32 [N, `channels`, H, W] of that size with any number of images.
ImageSize program_image_size(const std::string& owner, const std::string& path,
                             const program::TensorSignature& images, std::int64_t channels,
                             std::optional<std::int64_t> size, std::int64_t default_size);

/// The only input of a program for images, and its first output.
struct ImageProgram {
  std::string path{};
  std::int64_t height = 0;  ///< pixels
  std::int64_t width = 0;
  std::int64_t classes = 0;  ///< size of the output's last dimension; 0: not fixed by the export
  std::string input{};       ///< name of the images among the arguments of forward()
  std::string output{};      ///< name of the output; "0" if the program returns one tensor
};

/// Reads what the program at `path` takes and returns, without LibTorch. `size` is the side of the
/// images if the export has not fixed it. Throws ConfigError, which begins with `owner`, if the
/// program does not take one batch of images, float32 [N, 3, H, W], or was exported for another
/// size or for one size of batch.
ImageProgram read_image_program(const std::string& owner, const std::string& path,
                                std::optional<std::int64_t> size, std::int64_t default_size);

/// The task of a classifier, whose output "logits", or else its first one, is [N, classes]. Throws
/// ConfigError if the data has another number of classes than the program.
std::unique_ptr<Task> make_program_classifier(const ImageProgram& program,
                                              std::int64_t num_classes);

/// The task of an auto-encoder, whose first output has the shape of the images.
std::unique_ptr<Task> make_program_autoencoder(const ImageProgram& program,
                                               const Normalize& normalize);

}  // namespace lockstep::recipes
