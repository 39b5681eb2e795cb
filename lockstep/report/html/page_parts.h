// Elements of the report's page: tables, figures with their data, sections, the style.
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
  Table table{};          ///< the data that the picture shows
  Commands commands{};    ///< the commands that produced the data
};

/// The table as HTML, which scrolls if it is too wide. `id` is its anchor; empty if nothing links
/// to it.
std::string text_of(const Table& table, const std::string& label, const std::string& id = "");

/// The picture, with its table and commands folded away below it. Empty if there is no picture.
std::string text_of(const Figure& figure);

/// A paragraph of escaped text.
std::string paragraph(const std::string& text);

/// A heading and the content below it. Empty without content.
std::string section(const std::string& id, const std::string& title, const std::string& content);

/// The style element of the page, for light and dark color schemes.
std::string style();

}  // namespace lockstep::html
