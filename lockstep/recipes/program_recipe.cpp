#include <lockstep/recipes/program_recipe.h>

#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/graph/signature.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <lockstep/recipes/autoencoder_task.h>

namespace lockstep::recipes {
namespace {

constexpr const char* kLogits = "logits";

// The output that the task uses, of all that a program returns.
const torch::Tensor& result_of(const ProgramOutput& output) {
  return output.contains(kLogits) ? output[kLogits].tensor() : output.first_tensor();
}

torch::Tensor forward_of(torch::nn::Module& module, const torch::Tensor& images) {
  return result_of(dynamic_cast<ProgramImpl&>(module).forward(images));
}

}  // namespace

std::vector<pipeline::StageModule> cut_program(const Program& net, int count,
                                               ProgramResult result) {
  // By bytes, because measured times differ between ranks, which must cut at the same places.
  std::vector<Program> parts = split(net, count, {.by_time = false});
  std::vector<pipeline::StageModule> stages;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::shared_ptr<ProgramImpl> part = parts[i].ptr();
    const bool is_last = i + 1 == parts.size();
    stages.emplace_back(part, [part, is_last, result](const Tensors& inputs) -> Tensors {
      ProgramOutput output = part->forward(inputs);
      if (is_last) return {result(output)};
      Tensors tensors;
      each_tensor(output, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
      return tensors;
    });
  }
  return stages;
}

ImageSize program_image_size(const std::string& owner, const std::string& path,
                             const program::TensorSignature& images, std::int64_t channels,
                             std::optional<std::int64_t> size, std::int64_t default_size) {
  const auto fail = [&](const auto&... values) {
    throw ConfigError(lockstep::str(owner, ": ", path, ' ', values...));
  };
  if (images.sizes.size() != 4 || images.dtype != "float32" || images.sizes[1] != channels) {
    fail("takes ", program::type_text(images), ", expected images, float32 [N, ", channels,
         ", H, W]");
  }
  if (images.sizes[0]) {
    fail("was exported for batches of ", *images.sizes[0],
         "; export it with dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)");
  }
  const std::int64_t height = images.sizes[2].value_or(size.value_or(default_size));
  const std::int64_t width = images.sizes[3].value_or(size.value_or(default_size));
  if (size && (height != *size || width != *size)) {
    fail("was exported for images of ", height, "x", width, " pixels, but the image size is ",
         *size);
  }
  return {static_cast<int>(height), static_cast<int>(width)};
}

ImageProgram read_image_program(const std::string& owner, const std::string& path,
                                std::optional<std::int64_t> size, std::int64_t default_size) {
  const program::ProgramSignature signature = program::read_signature(path);
  const auto fail = [&](const auto&... values) {
    throw ConfigError(lockstep::str(owner, ": ", path, ' ', values...));
  };
  if (signature.inputs.size() != 1) {
    fail("takes ", signature.inputs.size(), " tensors, expected one batch of images");
  }
  const ImageSize side =
      program_image_size(owner, path, signature.inputs.front(), 3, size, default_size);
  if (signature.outputs.empty()) fail("returns no tensor");
  ImageProgram program{.path = path, .height = side.height, .width = side.width};
  const program::TensorSignature* output = &signature.outputs.front();
  for (const auto& each : signature.outputs) {
    if (each.name == kLogits) output = &each;
  }
  if (output->sizes.size() == 2) program.classes = output->sizes[1].value_or(0);
  program.input = signature.inputs.front().name;
  program.output = output->name;
  return program;
}

std::unique_ptr<Task> make_program_classifier(const ImageProgram& program,
                                              std::int64_t num_classes) {
  if (program.classes != 0 && num_classes != 0 && program.classes != num_classes) {
    throw ConfigError(lockstep::str("recipe classify: ", program.path, " was exported with ",
                                    program.classes, " classes, but the data has ", num_classes,
                                    "; export the model with num_classes=", num_classes));
  }
  const Program net(program.path);
  return std::make_unique<ClassificationTask>(
      net.ptr(), forward_of, ClassificationLoss::kCrossEntropy,
      [net](int count) { return cut_program(net, count, result_of); });
}

std::unique_ptr<Task> make_program_autoencoder(const ImageProgram& program,
                                               const Normalize& normalize) {
  const Program net(program.path);
  return std::make_unique<AutoencoderTask>(net.ptr(), forward_of, normalize, [net](int count) {
    return cut_program(net, count, result_of);
  });
}

}  // namespace lockstep::recipes
