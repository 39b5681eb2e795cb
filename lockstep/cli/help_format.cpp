#include <lockstep/cli/help_format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <lockstep/core/strings.h>

namespace lockstep::cli {
namespace {

constexpr std::size_t kHelpColumns = 100;

// `line` in parts of at most `width` characters, broken between words. Further parts of an indented
// line are indented by two more.
std::vector<std::string> broken(const std::string& line, std::size_t width) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::vector<std::string> parts(1, std::string(indent, ' '));
  std::istringstream words(line);
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && parts.back().size() + 1 + word.size() > width) {
      parts.emplace_back(indent == 0 ? 0 : indent + 2, ' ');
      is_first = true;
    }
    parts.back() += (is_first ? "" : " ") + word;
  }
  return parts;
}

}  // namespace

std::string HelpFormat::row(const std::string& name, const std::string& help) const {
  const std::size_t left = get_column_width();
  std::string text = "  " + name;
  std::size_t column = text.size();
  if (!help.empty() && column >= left) {
    text += '\n';
    column = 0;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& part : broken(line, kHelpColumns - left)) {
      text += std::string(left - column, ' ') + part + '\n';
      column = 0;
    }
  }
  return help.empty() ? text + '\n' : text;
}

// CLI11 2.1 leaves two empty lines between groups.
std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode),
                                       "\n\n\n", "\n\n");
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  return row(make_option_name(option, is_positional) + make_option_opts(option),
             make_option_desc(option));
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  return join(broken(app->get_description(), kHelpColumns), "\n") + "\n";
}

// The type, except that of an argument, the default value and whether the option is required. Which
// options cannot be combined is in their texts.
std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string text;
  const std::string type = option->get_type_name();  // empty for a flag
  if (!option->get_positional() && !type.empty()) text += " " + type;
  if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
  if (option->get_expected_max() == CLI::detail::expected_max_vector_size) {
    text += " ...";
  } else if (option->get_expected_min() > 1) {
    text += str(" x ", option->get_expected_min());
  }
  if (option->get_required()) text += " (required)";
  return text;
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return row(command->get_name(), command->get_description());
}

}  // namespace lockstep::cli
