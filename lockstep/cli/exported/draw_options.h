// The options of `lockstep program draw`.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/named_choices.h>

namespace lockstep::cli {

/// The options as given by the user.
struct ProgramDrawArguments {
  std::string file;
  std::string out;  ///< empty: standard output
  std::string format = "svg";
  std::optional<int> depth;  ///< absent: default_depth()
  std::optional<int> stages;

  bool operator==(const ProgramDrawArguments&) const = default;
};

enum class DrawingFormat { kSvg, kText, kDot };
const NamedChoices<DrawingFormat>& drawing_formats();

/// Adds the options to `command`; `to` must outlive the parsing.
void add_program_draw_options(CLI::App& command, ProgramDrawArguments& to);

/// Throws ConfigError for values out of range and for a file that cannot be written.
DrawingFormat check_draw_options(const ProgramDrawArguments& arguments);

}  // namespace lockstep::cli
