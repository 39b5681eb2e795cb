#include <lockstep/cli/data/preview.h>

#include <CLI/CLI.hpp>

#include <lockstep/cli/image_options.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/operators_option.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::cli {
namespace {

template <class Value>
void add_number(CLI::App& command, const char* name, Value& to, const char* help) {
  command.add_option(name, to, help)->transform(whole_number<Value>())->capture_default_str();
}

void add_data_options(CLI::App& command, PreviewArguments& to) {
  command
      .add_option("SOURCE", to.choice.source,
                  "Data to show: " + join(known_data_names()) +
                      ", a folder with a subfolder of images for each class, or a file made by "
                      "`lockstep data pack`")
      ->required();
  command.add_option("--out", to.out, "PNG file to write (its folder must exist)")
      ->required()
      ->type_name("FILE");
  add_operators_option(command, to.choice.operators);
  add_number(command, "--size", to.choice.size,
             "Side of the cropped images, in pixels (--operators random-resized-crop only)");
  command.add_option("--data", to.choice.directory, "Folder with a known data set's files");
  add_max_image_pixels_option(command, to.choice.max_image_pixels);
  add_decoding_option(command, to.decoding);
  add_exif_transpose_option(command, to.choice.exif_transpose);
  add_corrupt_image_option(command, to.on_corrupt_image);
}

}  // namespace

void add_preview_options(CLI::App& command, PreviewArguments& to) {
  add_data_options(command, to);
  add_number(command, "--images", to.options.images,
             "Number of rows, one image each, spread over the classes");
  add_number(command, "--versions", to.options.versions,
             "Number of columns; each shows the images as augmented in another epoch");
  command
      .add_option("--scale", to.options.scale,
                  "Factor by which images are enlarged (default: the smallest that makes the "
                  "longer side of an image at least 96 pixels)")
      ->transform(whole_number<std::int64_t>());
  add_number(command, "--seed", to.options.seed,
             "Seed of the augmentation and of the choice of images");
  add_number(command, "--epoch", to.options.epoch, "First epoch to show, from 0");
  command
      .add_option("--loader", to.engine,
                  "Loader that prepares the images: " + join(loader_engine_names()))
      ->capture_default_str();
  add_mix_option(command, to.mix, "Mix the images of the sheet, each column as a batch");
  command.add_option("--json", to.json, "Also write what the sheet shows to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

}  // namespace lockstep::cli
