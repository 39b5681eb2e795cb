// Elements of the report's page: tables, figures with their rows, sections, the style.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::html {

using Cells = std::vector<std::string>;

/// A table; its texts are escaped when written.
struct Table {
  Cells titles{};
  std::vector<Cells> rows{};
};

/// A run's name and its command.
using Commands = std::vector<std::pair<std::string, std::string>>;

struct Figure {
  std::string title{};
  std::string note{};     ///< sentences below the title; may be empty
  std::string picture{};  ///< HTML
  Table table{};          ///< the rows behind the picture
  Commands commands{};    ///< what produced them
};

/// The table in a place that scrolls where it is too wide. `id` names it; empty: nothing links to
/// it.
std::string text_of(const Table& table, const std::string& label, const std::string& id = "");

/// The picture, and below it, folded away, its rows and the commands. A figure without a picture is
/// empty.
std::string text_of(const Figure& figure);

/// A paragraph of escaped text.
std::string paragraph(const std::string& text);

/// A heading with what stands below it. Empty without content.
std::string section(const std::string& id, const std::string& title, const std::string& content);

/// The style element of the page, for light and dark color schemes.
std::string style();

}  // namespace lockstep::html
