// Options of commands that read image files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/named_choices.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/images/corrupt_image.h>
#include <lockstep/data/images/image_reader.h>
#include <lockstep/formats/image.h>

namespace lockstep::cli {

inline const NamedChoices<OnCorruptImage>& corrupt_image_choices() {
  static const NamedChoices<OnCorruptImage> choices = {
      {"stop", OnCorruptImage::kStop, "end with an error that names the file"},
      {"skip", OnCorruptImage::kSkip, "skip the image and count it"}};
  return choices;
}

inline void add_corrupt_image_option(CLI::App& command, std::string& to) {
  command
      .add_option("--on-corrupt-image", to,
                  "What to do with an image that cannot be decoded: " +
                      choices_text(corrupt_image_choices()))
      ->capture_default_str();
}

/// Throws ConfigError, beginning with `command`, if `word` is unknown.
inline OnCorruptImage parse_corrupt_image_option(const std::string& command,
                                                 const std::string& word) {
  return chosen_value(command, "--on-corrupt-image", corrupt_image_choices(), word);
}

/// For commands that read a folder or pack of images by its path.
inline void add_exif_transpose_option(CLI::App& command, bool& to) {
  command.add_flag("--exif-transpose", to,
                   "Turn photographs upright by their EXIF orientation, which is ignored otherwise "
                   "(only for a folder of images, or a pack of their files)");
}

inline constexpr const char* kMaxImagePixelsHelp =
    "Largest image to decode, in pixels; decoding takes up to 12 bytes per pixel";

inline void add_max_image_pixels_option(CLI::App& command, std::int64_t& to) {
  command.add_option("--max-image-pixels", to, kMaxImagePixelsHelp)
      ->transform(whole_number<std::int64_t>())
      ->capture_default_str();
}

/// For commands that must know whether the option was given, because not every recipe reads image
/// files.
inline void add_max_image_pixels_option(CLI::App& command, std::optional<std::int64_t>& to) {
  command
      .add_option("--max-image-pixels", to,
                  lockstep::str(kMaxImagePixelsHelp,
                                " (only for a recipe that reads --data as a folder of images; "
                                "default ",
                                kMaxImagePixels, ")"))
      ->transform(whole_number<std::int64_t>());
}

inline const NamedChoices<ImageReader::Decoding>& decoding_choices() {
  static const NamedChoices<ImageReader::Decoding> choices = {
      {"exact", ImageReader::Decoding::kExact, "at full size"},
      {"scaled", ImageReader::Decoding::kScaled,
       "at a half, a quarter or an eighth of it if that is enough, which is faster; --loader "
       "native only"}};
  return choices;
}

inline std::string decoding_help() {
  return "How to decode JPEG files before a resize: " + choices_text(decoding_choices());
}

inline void add_decoding_option(CLI::App& command, std::string& to) {
  command.add_option("--decoding", to, decoding_help())->capture_default_str();
}

/// For commands that must know whether the option was given.
inline void add_decoding_option(CLI::App& command, std::optional<std::string>& to) {
  command.add_option("--decoding", to,
                     decoding_help() +
                         "; only for a recipe that reads --data as a folder of images (default "
                         "exact)");
}

/// Throws ConfigError, beginning with `command`, if `word` is unknown.
inline ImageReader::Decoding parse_decoding_option(const std::string& command,
                                                   const std::string& word) {
  return chosen_value(command, "--decoding", decoding_choices(), word);
}

/// Throws ConfigError, beginning with `command`, if `value` is out of range.
inline void check_max_image_pixels(const std::string& command, std::int64_t value) {
  OptionCheck(command).in_range("--max-image-pixels", static_cast<double>(value), 1,
                                static_cast<double>(kMaxImagePixelsLimit));
}

}  // namespace lockstep::cli
