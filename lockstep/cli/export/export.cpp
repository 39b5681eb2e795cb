// lockstep export CHECKPOINT --onnx FILE
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/cli/train/train_checkpoints.h>
#include <lockstep/cli/train/weights_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/export/onnx_export.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/report/text.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>

namespace lockstep::cli {
namespace {

// The weights file of `path`, which may be the folder of a run or of a checkpoint.
std::string weights_in(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    throw ConfigError(lockstep::str(path,
                                    " does not exist; give the folder that `lockstep train --out` "
                                    "has written, a checkpoint in it, or a weights file"));
  }
  for (const char* name : {train::kModelFile, kWeightsLink}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::is_regular_file(file, ignored)) return file.string();
  }
  return path;
}

struct ExportArguments {
  std::string checkpoint;
  std::string onnx;
  std::string recipe;
  std::string model;
  std::optional<std::int64_t> image_size;
  int opset = 20;
  std::int64_t batch_size = 1;
  bool dynamic_batch = false;
  bool half = false;
  bool no_fold_batch_norm = false;
  bool no_average = false;
};

// The checkpoint's description of the trained network.
struct TrainedBy {
  std::string recipe;                          // empty: no recipe is named
  std::map<std::string, std::string> choices;  // Recipe::choices
};

// A torch.save file cannot hold these names.
TrainedBy trained_by(const std::string& checkpoint) {
  const MappedFile file(checkpoint);
  TrainedBy found;
  if (is_torch_file(file.bytes())) return found;
  const Safetensors content = parse_safetensors(file.bytes(), checkpoint);
  for (const auto& [name, value] : content.metadata) {
    if (name == "recipe") found.recipe = value;
    if (name.starts_with(kRecipeOption)) found.choices[name.substr(kRecipeOption.size())] = value;
  }
  return found;
}

// The checkpoint's recipe with its choices; options of the user take precedence.
recipes::Recipe recipe_of(const ExportArguments& arguments) {
  const TrainedBy trained = trained_by(arguments.checkpoint);
  const std::string name = arguments.recipe.empty() ? trained.recipe : arguments.recipe;
  if (name.empty()) {
    throw ConfigError(lockstep::str(arguments.checkpoint, " names no recipe; give --recipe"));
  }
  recipes::RecipeChoices choices;
  if (name == trained.recipe) choices = recipes::choices_from(trained.choices);
  if (!arguments.model.empty()) choices.model = arguments.model;
  if (arguments.image_size) choices.image_size = arguments.image_size;
  return recipes::chosen_recipe(name, choices);
}

// Number of outputs of the last layer, which some recipes derive from their data.
std::int64_t classes_in(const StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (name == "fc.weight" && tensor.dim() == 2) return tensor.size(0);
  }
  return 0;
}

void run_export(const ExportArguments& arguments) {
  const recipes::Recipe recipe = recipe_of(arguments);
  const WeightsOfFile weights = load_weights_file(
      arguments.checkpoint, arguments.no_average ? WeightsKind::kTrained : WeightsKind::kEvaluated);
  const std::unique_ptr<Task> task =
      recipe.make_task({.fused_kernels = false, .num_classes = classes_in(weights.state)});
  auto* const model = dynamic_cast<OutputTask*>(task.get());
  if (model == nullptr) {
    throw ConfigError(lockstep::str("recipe ", recipe.name, ": its task has no single output"));
  }
  torch::nn::Module& module = model->module();
  load_state_dict(module, weights.state);
  module.eval();
  const torch::Tensor images = torch::randn(
      {arguments.batch_size, recipe.input.channels, recipe.input.height, recipe.input.width});
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& inputs) {
    return std::vector<torch::Tensor>{model->forward(module, inputs[0])};
  };
  const OnnxExport written = export_onnx(module, forward, {images}, arguments.onnx,
                                         {.opset = arguments.opset,
                                          .dynamic_batch = arguments.dynamic_batch,
                                          .half = arguments.half,
                                          .fold_batch_norm = !arguments.no_fold_batch_norm});
  std::cout << arguments.onnx << ": " << report::bytes_text(static_cast<double>(written.bytes))
            << ", " << amount_of(written.nodes, "node") << ", opset " << arguments.opset
            << ", input ["
            << (arguments.dynamic_batch ? "batch" : std::to_string(arguments.batch_size)) << ", "
            << recipe.input.channels << ", " << recipe.input.height << ", " << recipe.input.width
            << "]" << (weights.averaged ? ", averaged weights" : "") << '\n';
}

}  // namespace

void add_export_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a trained network as an ONNX model");
  const auto to = std::make_shared<ExportArguments>();
  command
      ->add_option("CHECKPOINT", to->checkpoint,
                   "Checkpoint made by `lockstep train --out DIR`: DIR, a checkpoint in DIR, or "
                   "the weights file of a checkpoint; with --recipe, any weights file "
                   "(.safetensors, .pt, .pth)")
      ->required();
  command->add_option("--onnx", to->onnx, "ONNX file to write")->required()->type_name("FILE");
  command->add_option(
      "--recipe", to->recipe,
      "Recipe of the network: " + join(recipe_names()) + " (default: the checkpoint's)");
  command->add_option(
      "--model", to->model,
      "Network of the recipe (" + only_recipes(has_models) + ", default: the checkpoint's)");
  command
      ->add_option("--image-size", to->image_size,
                   "Side of the images, in pixels (" + only_recipes(has_image_sizes) +
                       ", default: the checkpoint's)")
      ->transform(whole_number<std::int64_t>());
  command->add_option("--opset", to->opset, "Version of ONNX's operator set, 17 to 20")
      ->capture_default_str()
      ->transform(whole_number<int>());
  CLI::Option* const dynamic = command->add_flag("--dynamic-batch", to->dynamic_batch,
                                                 "Let the model accept batches of any size");
  command
      ->add_option("--batch-size", to->batch_size,
                   "Images per batch of the model (not with --dynamic-batch)")
      ->capture_default_str()
      ->transform(whole_number<std::int64_t>())
      ->excludes(dynamic);
  command->add_flag("--half", to->half,
                    "Store parameters and compute in float16; input and output stay float32");
  command->add_flag("--no-fold-batch-norm", to->no_fold_batch_norm,
                    "Do not fold batch normalisation into the preceding convolutions");
  command->add_flag("--no-average", to->no_average,
                    "Export the weights of the last step instead of the average that the run "
                    "evaluated (runs with --ema-decay only)");
  for (const char* name : {"CHECKPOINT", "--onnx", "--recipe", "--model"}) {
    command->get_option(name)->check(not_empty());
  }
  command->callback([to] {
    if (to->batch_size < 1) {
      throw ConfigError(str("--batch-size must be at least 1, got ", to->batch_size));
    }
    to->checkpoint = weights_in(to->checkpoint);
    run_export(*to);
  });
}

}  // namespace lockstep::cli
