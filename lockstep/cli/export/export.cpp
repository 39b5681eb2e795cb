// lockstep export CHECKPOINT --onnx FILE
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/core/error.h>
#include <lockstep/export/onnx_export.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

struct ExportArguments {
  TrainedArguments trained;
  std::string onnx;
  int opset = 20;
  std::int64_t batch_size = 1;
  bool dynamic_batch = false;
  bool half = false;
  bool no_fold_batch_norm = false;
};

// Names the values of a model as its program does.
void take_names_of(const recipes::Recipe& recipe, const std::string& program,
                   OnnxExportOptions& options) {
  const recipes::ImageProgram names =
      recipes::read_image_program("export", program, std::nullopt, recipe.input.height);
  options.input_names = {names.input};
  // A tensor that is returned alone or in a list has a number in the place of a name.
  const bool is_named = names.output.find_first_not_of("0123456789") != std::string::npos;
  if (is_named && names.output != names.input) options.output_names = {names.output};
}

void run_export(const ExportArguments& arguments) {
  const TrainedModel trained = load_trained(arguments.trained, /*is_fused=*/false);
  const recipes::Recipe& recipe = trained.recipe;
  OnnxExportOptions options{.opset = arguments.opset,
                            .dynamic_batch = arguments.dynamic_batch,
                            .half = arguments.half,
                            .fold_batch_norm = !arguments.no_fold_batch_norm,
                            .metadata = portable_notes(trained)};
  const auto program = recipe.choices.find(recipes::kProgramChoice);
  if (program != recipe.choices.end()) {
    take_names_of(recipe, program->second, options);
    options.follow_batch = true;  // programs read sizes wherever the Python model did
  }
  torch::nn::Module& module = trained.task->module();
  const torch::Tensor images = torch::randn(
      {arguments.batch_size, recipe.input.channels, recipe.input.height, recipe.input.width});
  const OnnxForward forward = [&](const std::vector<torch::Tensor>& inputs) {
    return std::vector<torch::Tensor>{trained.task->forward(module, inputs[0])};
  };
  const OnnxExport written = export_onnx(module, forward, {images}, arguments.onnx, options);
  std::cout << arguments.onnx << ": " << report::bytes_text(static_cast<double>(written.bytes))
            << ", " << amount_of(written.nodes, "node") << ", opset " << arguments.opset
            << ", input ["
            << (arguments.dynamic_batch ? "batch" : std::to_string(arguments.batch_size)) << ", "
            << recipe.input.channels << ", " << recipe.input.height << ", " << recipe.input.width
            << "]" << (trained.averaged ? ", averaged weights" : "") << '\n';
}

}  // namespace

void add_export_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a trained network as an ONNX model");
  const auto to = std::make_shared<ExportArguments>();
  add_trained_options(*command, to->trained);
  command->add_option("--onnx", to->onnx, "ONNX file to write")
      ->required()
      ->type_name("FILE")
      ->check(not_empty());
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
  command->callback([to] {
    if (to->batch_size < 1) {
      throw ConfigError(str("--batch-size must be at least 1, got ", to->batch_size));
    }
    run_export(*to);
  });
}

}  // namespace lockstep::cli
