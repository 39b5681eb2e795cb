#include <lockstep/cli/data_choice.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>

#include <CLI/CLI.hpp>

#include <lockstep/cli/image_options.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/data/datasets/known_data.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/report/download_bar.h>

namespace lockstep::cli {
namespace {

ImageDataset open_folder_or_pack(const std::string& command, const DataChoice& choice) {
  std::error_code error;  // with one, the file's own message is better
  if (!std::filesystem::exists(choice.source, error) && !error) {
    throw unknown_source(command, "SOURCE", choice.source);
  }
  if (choice.split || choice.directory) {
    throw ConfigError(str(command, ": ", choice.split ? "--split" : "--data",
                          " belongs to a known data set (", join(known_data_names()),
                          "); for a folder, give the path of the part, such as photos/train"));
  }
  return data::open_images(choice.source, {.max_image_pixels = choice.max_image_pixels,
                                           .exif_transpose = choice.exif_transpose,
                                           .keep_unreadable = choice.keep_unreadable});
}

}  // namespace

ConfigError unknown_source(const std::string& command, const std::string& option,
                           const std::string& source) {
  const bool is_path = source.find('/') != std::string::npos;
  return ConfigError(str(command, ": ", option, " must be one of ", join(known_data_names()),
                         ", a folder of images or a pack, got '", source, "', which does not exist",
                         is_path ? "" : did_you_mean(source, known_data_names())));
}

ConfigError exif_transpose_without_files(const std::string& command, const std::string& option,
                                         const std::string& source) {
  return ConfigError(str(command,
                         ": --exif-transpose belongs to a folder or pack of image files, got ",
                         option, " ", source));
}

void add_data_choice_options(CLI::App& command, DataChoice& to) {
  command
      .add_option("SOURCE", to.source,
                  "Data to read: a folder with a subfolder of images for each class, a file made "
                  "by `lockstep data pack`, or " +
                      join(known_data_names()))
      ->required();
  command.add_option("--split", to.split,
                     "Part of a known data set: train or test (default train)");
  command.add_option("--data", to.directory, "Folder with a known data set's files");
  add_max_image_pixels_option(command, to.max_image_pixels);
}

ImageDataset open_data(const std::string& command, const DataChoice& choice) {
  check_max_image_pixels(command, choice.max_image_pixels);
  const auto& known = known_data_names();
  if (std::find(known.begin(), known.end(), choice.source) == known.end()) {
    return open_folder_or_pack(command, choice);
  }
  if (choice.exif_transpose) throw exif_transpose_without_files(command, "SOURCE", choice.source);
  const std::string split = choice.split.value_or("train");
  OptionCheck(command).one_of("--split", split, {"train", "test"});
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  const auto folder = find_or_download_data(
      {.name = choice.source, .directory = choice.directory, .progress = std::ref(bar)});
  return data::load_known_data(choice.source, folder,
                               split == "train" ? Split::kTrain : Split::kTest);
}

}  // namespace lockstep::cli
