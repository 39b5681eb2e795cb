#include <lockstep/recipes/loss_program.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/recipes/loss_task.h>
#include <lockstep/recipes/program_recipe.h>

namespace lockstep::recipes {
namespace {

constexpr const char* kLossOwner = "recipe program: ";

template <class... Values>
[[noreturn]] void refuse(const Values&... values) {
  throw ConfigError(lockstep::str(kLossOwner, values...));
}

std::vector<std::string> names_of_inputs(const LossProgram& program) {
  std::vector<std::string> names;
  for (const auto& input : program.inputs) names.push_back(input.name);
  return names;
}

void require_loss(const std::string& path, const program::ProgramSignature& signature) {
  if (signature.outputs.empty()) refuse(path, " returns no tensor, expected its loss");
  const auto named = std::ranges::find(signature.outputs, "loss", &program::TensorSignature::name);
  const program::TensorSignature& loss =
      named == signature.outputs.end() ? signature.outputs.front() : *named;
  const bool is_floating = loss.dtype.starts_with("float") || loss.dtype.starts_with("bfloat");
  if (loss.sizes.empty() && is_floating) return;
  refuse(path, ": the output '", loss.name, "' is ", program::type_text(loss),
         ", expected the loss, a floating-point number: export a model whose output 'loss', or "
         "first output, is its mean loss over the batch");
}

// Refuses an unused input that looks like another one.
void require_own_places(const std::string& path,
                        const std::vector<program::TensorSignature>& inputs) {
  for (const auto& input : inputs) {
    if (input.is_used) continue;
    for (const auto& other : inputs) {
      if (!other.is_used || program::type_text(other) != program::type_text(input)) continue;
      refuse(path, " does not use its input '", input.name,
             "': torch.export confuses arguments that are the same tensor, here maybe '",
             other.name, "'; export the model with a tensor of its own for each argument (",
             other.name, ".clone()), or without the argument '", input.name, "'");
    }
  }
}

// A program whose arguments are the tensors of the signature. ConfigError if it takes others, which
// data cannot give.
Program open_program(const LossProgram& program) {
  Program net(program.path);
  for (const ProgramInput& input : net->inputs()) {
    const std::vector<std::string> names = names_of_inputs(program);
    if (std::ranges::find(names, input.name) != names.end()) continue;
    refuse(program.path, " takes '", input.name, "', which is ", input.type,
           " and no tensor; export the model with a constant in its place");
  }
  return net;
}

ImageInput parse_source(const std::string& name, std::string_view source) {
  if (source == "images") return ImageInput::kImages;
  if (source == "labels") return ImageInput::kLabels;
  refuse("the input '", name, "' gets images or labels, got '", source, "'");
}

void require_labels(const LossProgram& program, const program::TensorSignature& input) {
  if (input.dtype == "int64" && input.sizes.size() == 1) return;
  refuse(program.path, " takes ", program::type_text(input), " as '", input.name,
         "', but labels are int64 [N]");
}

}  // namespace

LossProgram read_loss_program(const std::string& path) {
  program::ProgramSignature signature = program::read_signature(path);
  require_loss(path, signature);
  if (signature.inputs.empty()) refuse(path, " takes no tensors");
  for (const auto& input : signature.inputs) {
    if (!input.sizes.empty() && !input.sizes.front()) continue;
    refuse(path, " takes ", program::type_text(input), " as '", input.name,
           "', whose first dimension must count the samples, in any number; export the model with "
           "{0: torch.export.Dim.DYNAMIC} for it in dynamic_shapes");
  }
  require_own_places(path, signature.inputs);
  return {.path = path, .inputs = std::move(signature.inputs)};
}

std::vector<ImageInput> parse_image_inputs(const LossProgram& program, const std::string& text) {
  const std::vector<std::string> names = names_of_inputs(program);
  std::vector<std::optional<ImageInput>> sources(names.size());
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    at = comma + 1;
    const std::size_t equals = word.rfind('=');
    if (equals == std::string::npos) {
      refuse("the inputs are NAME=images,NAME=labels, got '", word, "'");
    }
    const std::string name = word.substr(0, equals);
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      refuse(program.path, " has no input '", name, "', it takes ", join(names),
             did_you_mean(name, names));
    }
    auto& source = sources[static_cast<std::size_t>(found - names.begin())];
    if (source) refuse("the input '", name, "' is named twice");
    source = parse_source(name, std::string_view(word).substr(equals + 1));
  }
  std::vector<ImageInput> inputs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!sources[i]) refuse("the input '", names[i], "' of ", program.path, " gets nothing");
    if (*sources[i] == ImageInput::kLabels) require_labels(program, program.inputs[i]);
    inputs.push_back(*sources[i]);
  }
  if (std::ranges::find(inputs, ImageInput::kImages) == inputs.end()) {
    refuse("no input of ", program.path, " gets the images");
  }
  return inputs;
}

std::unique_ptr<BatchTask<Tensors>> make_loss_task(const LossProgram& program) {
  return std::make_unique<LossTask<Tensors>>(open_program(program),
                                             [](const Tensors& batch) { return batch; });
}

std::unique_ptr<Task> make_image_loss_task(const LossProgram& program,
                                           const std::vector<ImageInput>& inputs) {
  return std::make_unique<LossTask<Batch>>(open_program(program), [inputs](const Batch& batch) {
    Tensors tensors;
    for (const ImageInput each : inputs) {
      tensors.push_back(each == ImageInput::kImages ? batch.images : batch.labels);
    }
    return tensors;
  });
}

}  // namespace lockstep::recipes
