// Programs that compute their own loss, such as a Hugging Face model with labels.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/program/graph/signature.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

struct LossProgram {
  std::string path{};
  std::vector<program::TensorSignature> inputs{};  ///< in the order of forward()
};

/// Reads what the program at `path` takes, without LibTorch. Throws ConfigError unless it takes
/// tensors whose first dimensions were exported with any size, and its output `loss`, or else its
/// first output, is a floating-point number.
LossProgram read_loss_program(const std::string& path);

/// What an input of a program gets of a batch of images.
enum class ImageInput { kImages, kLabels };

/// Parses "NAME=images,NAME=labels": returns what each input of the program gets, in their order.
/// Throws ConfigError, which names the inputs, unless each is named once and one gets images.
std::vector<ImageInput> parse_image_inputs(const LossProgram& program, const std::string& text);

/// The task of a program whose batches have a tensor for each input, in their order. The loss of an
/// evaluation is the mean over samples of the batches' losses.
std::unique_ptr<BatchTask<Tensors>> make_loss_task(const LossProgram& program);
/// The task of a program that gets batches of images with labels.
std::unique_ptr<Task> make_image_loss_task(const LossProgram& program,
                                           const std::vector<ImageInput>& inputs);

}  // namespace lockstep::recipes
