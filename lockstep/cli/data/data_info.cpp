// lockstep data info FILE.pack
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/data/data.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/pack.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

struct InfoArguments {
  std::string file;
  bool verify = false;
  std::string json;
};

struct Sides {
  std::int64_t least = formats::kMaximumPackSide;
  std::int64_t most = 0;

  void add(std::int64_t side) {
    least = std::min(least, side);
    most = std::max(most, side);
  }
  std::string text() const { return least == most ? str(least) : str(least, " to ", most); }
};

// All images are checked, to show the extent of the damage.
void verify(const formats::PackReader& pack) {
  std::int64_t damaged = 0;
  std::string first;
  for (std::int64_t i = 0; i < pack.size(); ++i) {
    try {
      pack.verify(i);
    } catch (const DataError& error) {
      if (damaged++ == 0) first = error.what();
    }
  }
  if (damaged != 0)
    throw DataError(str(damaged, " of ", amount_of(pack.size(), "image"), ": ", first));
}

// DataError, which names the command that makes such a file, unless `path` is a file.
void require_file(const std::string& path) {
  const char* const written = "; FILE must be written by `lockstep data pack SOURCE OUT`";
  std::error_code error;  // with one, the file's own message is better
  if (std::filesystem::is_directory(path, error)) {
    throw DataError(
        str("'", path, "' is a folder", written, "; to check a folder, use `lockstep data check`"));
  }
  if (!std::filesystem::exists(path, error) && !error) {
    throw DataError(str("there is no file '", path, "'", written));
  }
}

void run(const InfoArguments& arguments) {
  require_file(arguments.file);
  const MappedFile file(arguments.file);
  const formats::PackReader pack(file.bytes(), arguments.file);
  const formats::PackInfo& info = pack.info();
  const bool files = info.kind == formats::PackKind::kFiles;
  Sides heights;
  Sides widths;
  for (std::int64_t i = 0; i < pack.size(); ++i) {
    heights.add(pack.record(i).height);
    widths.add(pack.record(i).width);
  }
  if (arguments.verify) verify(pack);
  const auto bytes = static_cast<double>(file.bytes().size());
  std::cout << "name       " << info.name << "\nimages     "
            << report::count_text(static_cast<double>(pack.size())) << ", "
            << (files ? "JPEG and PNG files" : "pixels") << " of " << info.channels
            << (info.channels == 1 ? " channel" : " channels") << ", " << heights.text()
            << " pixels high, " << widths.text() << " wide\nclasses    " << info.num_classes
            << (info.class_names.empty() ? "" : ": " + join(info.class_names)) << "\nbytes      "
            << report::bytes_text(bytes) << ", "
            << report::bytes_text(bytes / static_cast<double>(pack.size()))
            << " an image\nchecksums  "
            << (arguments.verify ? "OK" : "of the index OK; use --verify to check the images")
            << '\n';
  if (arguments.json.empty()) return;
  const nlohmann::ordered_json json{{"name", info.name},
                                    {"images", pack.size()},
                                    {"kind", files ? "files" : "pixels"},
                                    {"channels", info.channels},
                                    {"height", {heights.least, heights.most}},
                                    {"width", {widths.least, widths.most}},
                                    {"num_classes", info.num_classes},
                                    {"class_names", info.class_names},
                                    {"bytes", file.bytes().size()},
                                    {"verified", arguments.verify}};
  report::write_text_file(arguments.json, bench::json_text(json));
}

}  // namespace

void add_data_info_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand("info", "Show what a packed image file contains");
  const auto to = std::make_shared<InfoArguments>();
  command->add_option("FILE", to->file, "File made by `lockstep data pack`")->required();
  CLI::Option* const verify =
      command->add_flag("--verify", to->verify, "Read all images and check their checksums");
  command->add_option("--json", to->json, "Also write the output to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) {
    if (option != verify) option->check(not_empty());
  }
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
