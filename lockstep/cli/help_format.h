// The format of `--help`: names on the left and their descriptions on the right, in lines that fit
// a terminal.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 protected:
  /// `name` with `help` beside it, or below it if the name is too long. Each line of `help` is
  /// broken between words, and keeps its own indentation.
  std::string row(const std::string& name, const std::string& help) const;
};

/// While this object lives, options that are added to `command` are listed under `heading` in its
/// --help.
class HelpGroup {
 public:
  HelpGroup(CLI::App& command, const std::string& heading)
      : defaults_(*command.option_defaults()), before_(defaults_.get_group()) {
    defaults_.group(heading);
  }
  ~HelpGroup() { defaults_.group(before_); }
  HelpGroup(const HelpGroup&) = delete;
  HelpGroup& operator=(const HelpGroup&) = delete;

 private:
  CLI::OptionDefaults& defaults_;
  std::string before_;
};

}  // namespace lockstep::cli
