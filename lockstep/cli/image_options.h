// Options of commands that read image files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/option_checks.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/images/corrupt_image.h>
#include <lockstep/data/images/image_reader.h>
#include <lockstep/formats/image.h>

namespace lockstep {

inline void add_corrupt_image_option(CLI::App& command, std::string& to) {
  command
      .add_option("--on-corrupt-image", to,
                  "What to do with an image that cannot be decoded: stop (end the command and name "
                  "the file) or skip (leave the image out and count it)")
      ->capture_default_str();
}

/// ConfigError, beginning with `command`, for a word other than stop and skip.
inline OnCorruptImage parse_corrupt_image_option(const std::string& command,
                                                 const std::string& word) {
  OptionCheck(command).one_of("--on-corrupt-image", word, {"stop", "skip"});
  return word == "skip" ? OnCorruptImage::kSkip : OnCorruptImage::kStop;
}

inline constexpr const char* kMaxImagePixelsHelp =
    "Largest image to decode, in pixels; decoding takes up to 12 bytes per pixel";

inline void add_max_image_pixels_option(CLI::App& command, std::int64_t& to) {
  command.add_option("--max-image-pixels", to, kMaxImagePixelsHelp)
      ->transform(whole_number<std::int64_t>())
      ->capture_default_str();
}

/// For commands that must know whether the option was given, because not every recipe has image
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

inline constexpr const char* kDecodingHelp =
    "How to decode JPEG files before a resize: exact (at full size) or scaled (at a half, a "
    "quarter or an eighth of it if that is enough, which is faster; --loader native only";

inline void add_decoding_option(CLI::App& command, std::string& to) {
  command.add_option("--decoding", to, lockstep::str(kDecodingHelp, ")"))->capture_default_str();
}

/// For commands that must know whether the option was given.
inline void add_decoding_option(CLI::App& command, std::optional<std::string>& to) {
  command.add_option("--decoding", to,
                     lockstep::str(kDecodingHelp,
                                   "); only for a recipe that reads --data as a folder of images "
                                   "(default exact)"));
}

/// ConfigError, beginning with `command`, for a word other than exact and scaled.
inline ImageReader::Decoding parse_decoding_option(const std::string& command,
                                                   const std::string& word) {
  OptionCheck(command).one_of("--decoding", word, {"exact", "scaled"});
  return word == "scaled" ? ImageReader::Decoding::kScaled : ImageReader::Decoding::kExact;
}

/// ConfigError, beginning with `command`, for a value out of range.
inline void check_max_image_pixels(const std::string& command, std::int64_t value) {
  OptionCheck(command).in_range("--max-image-pixels", static_cast<double>(value), 1,
                                static_cast<double>(kMaxImagePixelsLimit));
}

}  // namespace lockstep
