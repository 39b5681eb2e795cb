// lockstep data preview SOURCE --out sheet.png
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/data/data.h>
#include <lockstep/cli/data/preview.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/loader_data.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/operators_option.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/augment/operator_name.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/report/json_report.h>

namespace lockstep::cli {
namespace {

constexpr const char* kDataPreview = "data preview";

struct PreviewArguments {
  LoaderDataChoice choice{.source_option = "SOURCE"};
  PreviewOptions options;
  std::string engine = "native";
  std::string mix = "none";
  std::string on_corrupt_image = "stop";
  std::string decoding = "exact";
  std::string out;
  std::string json;
};

std::filesystem::path check_files(const PreviewArguments& arguments) {
  if (!arguments.out.ends_with(".png")) {
    throw ConfigError(str(kDataPreview, ": --out must end in .png, got '", arguments.out, "'"));
  }
  return check_output_files(kDataPreview, "--out", arguments.out, arguments.json);
}

void write_json(const PreviewArguments& arguments, const LoaderData& data, const Preview& preview) {
  using Json = nlohmann::ordered_json;
  Json json{{"file", arguments.out},
            {"source", arguments.choice.source},
            {"dataset", data.dataset.name()},
            {"class_names", data.dataset.class_names()},
            {"operators", Json::array()},
            {"engine", arguments.engine},
            {"mix", arguments.mix},
            {"seed", arguments.options.seed},
            {"height", preview.sheet.height()},
            {"width", preview.sheet.width()},
            {"skipped_images", preview.skipped.size()},
            {"rows", Json::array()}};
  for (const Operator& op : data.augmentation) json["operators"].push_back(data::operator_name(op));
  for (const PreviewRow& row : preview.rows) {
    Json versions = Json::array();
    for (const PreviewVersion& version : row.versions) {
      Json labels = Json::array();
      for (const auto& [label, share] : version.shares) {
        labels.push_back({{"label", label}, {"share", share}});
      }
      versions.push_back({{"epoch", version.epoch}, {"labels", std::move(labels)}});
    }
    json["rows"].push_back(
        {{"index", row.index}, {"label", row.label}, {"versions", std::move(versions)}});
  }
  report::write_text_file(arguments.json, bench::json_text(json));
}

void run(PreviewArguments& arguments) {
  OptionCheck(kDataPreview).one_of("--loader", arguments.engine, loader_engine_names());
  arguments.options.engine = parse_loader_engine(arguments.engine);
  arguments.choice.decoding = parse_decoding_option(kDataPreview, arguments.decoding);
  check_decoding(kDataPreview, arguments.choice.decoding, arguments.options.engine);
  arguments.options.mix = parse_mix_option(kDataPreview, arguments.mix);
  arguments.options.on_corrupt_image =
      parse_corrupt_image_option(kDataPreview, arguments.on_corrupt_image);
  const auto out = check_files(arguments);
  const LoaderData data = open_loader_data(kDataPreview, arguments.choice);
  const Preview preview = make_preview(data.dataset, data.augmentation, arguments.options);
  write_file_atomically(out, preview.sheet.png());
  std::cout << arguments.out << ": "
            << amount_of(static_cast<std::int64_t>(preview.rows.size()), "image") << " of "
            << data.dataset.name() << ", " << amount_of(arguments.options.versions, "version")
            << " of each, " << preview.sheet.width() << "x" << preview.sheet.height()
            << " pixels\n";
  for (const CorruptImage& image : preview.skipped)
    std::cout << "left out " << with_flags(image.reason) << '\n';
  if (!arguments.json.empty()) write_json(arguments, data, preview);
}

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

void add_data_preview_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "preview", "Draw a sheet of training images as the network sees them, with their labels");
  const auto to = std::make_shared<PreviewArguments>();
  add_data_options(*command, *to);
  add_number(*command, "--images", to->options.images,
             "Number of rows, one image each, spread over the classes");
  add_number(*command, "--versions", to->options.versions,
             "Number of columns; each shows the images as augmented in another epoch");
  command
      ->add_option("--scale", to->options.scale,
                   "Factor by which images are enlarged (default: the smallest that makes the "
                   "longer side of an image at least 96 pixels)")
      ->transform(whole_number<std::int64_t>());
  add_number(*command, "--seed", to->options.seed,
             "Seed of the augmentation and of the choice of images");
  add_number(*command, "--epoch", to->options.epoch, "First epoch to show, from 0");
  command
      ->add_option("--loader", to->engine,
                   "Loader that prepares the images: " + join(loader_engine_names()))
      ->capture_default_str();
  add_mix_option(*command, to->mix, "Mix the images of the sheet, each column as a batch");
  command->add_option("--json", to->json, "Also write what the sheet shows to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
