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
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/augment/operator_name.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/report/json_report.h>

namespace lockstep::cli {
namespace {

constexpr const char* kDataPreview = "data preview";

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
  arguments.choice.keep_unreadable = arguments.options.on_corrupt_image == OnCorruptImage::kSkip;
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

}  // namespace

void add_data_preview_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "preview", "Draw a sheet of training images as the network sees them, with their labels");
  const auto to = std::make_shared<PreviewArguments>();
  add_preview_options(*command, *to);
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
