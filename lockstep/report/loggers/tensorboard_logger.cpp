#include <lockstep/report/loggers/tensorboard_logger.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/formats/logged_text.h>
#include <lockstep/formats/png.h>

namespace lockstep::report {
namespace {

constexpr formats::NumberWords kMarkdownNumberWords{"nan", "inf", "-inf"};

// Markdown that shows `text` verbatim in a cell. A line break or an HTML tag in a class name would
// otherwise end the table.
std::string markdown_cell(std::string_view text) {
  constexpr std::string_view kPunctuation = "\\`*_{}[]()>#+-.!|";
  std::string cell;
  for (const char letter : text) {
    if (letter == '<') {
      cell += "&lt;";
    } else if (letter == '&') {
      cell += "&amp;";
    } else if (static_cast<unsigned char>(letter) < ' ') {
      cell += ' ';
    } else {
      if (kPunctuation.find(letter) != std::string_view::npos) cell += '\\';
      cell += letter;
    }
  }
  return cell;
}

// A count in full digits: the shortest form of 100,000 would be 1e+05.
std::string markdown_number(double number) {
  constexpr double kWholeBelow = 1e15;
  if (std::trunc(number) == number && std::abs(number) < kWholeBelow) {
    return std::to_string(static_cast<std::int64_t>(number));
  }
  std::string text;
  formats::append_number(text, number, kMarkdownNumberWords);
  return text;
}

// Shorter rows are padded with empty cells.
std::string markdown_table(std::string_view name, const LoggedTable& table) {
  const std::size_t width = table.width();
  std::string text = "| " + markdown_cell(name) + " |";
  std::string line = "\n|---|";
  for (std::size_t column = 0; column < width; ++column) {
    text += ' ' + markdown_cell(table.label(column)) + " |";
    line += "---:|";
  }
  text += line;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    text += "\n| " + markdown_cell(table.label(row)) + " |";
    for (const double number : table.rows[row]) text += ' ' + markdown_number(number) + " |";
    for (std::size_t i = table.rows[row].size(); i < width; ++i) text += " |";
  }
  return text;
}

}  // namespace

TensorBoardLogger::TensorBoardLogger(const std::filesystem::path& folder, std::string run)
    : run_(std::move(run)), file_(folder, moment_at(0).time) {}

void TensorBoardLogger::log_hyper_parameters(std::span<const HyperParameter> parameters) {
  file_.begin_session(moment_at(0).time, run_, parameters);
  in_session_ = true;
}

void TensorBoardLogger::log_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  file_.add_scalars(moment, values);
}

void TensorBoardLogger::log_histogram(const LogMoment& moment, std::string_view name,
                                      const Histogram& histogram) {
  file_.add_histogram(moment, name, histogram);
}

void TensorBoardLogger::log_image(const LogMoment& moment, std::string_view name,
                                  const LoggedImage& image) {
  file_.add_image(moment, name, detail::encode_png(image.rgb, image.width, image.height),
                  image.width, image.height);
}

void TensorBoardLogger::log_table(const LogMoment& moment, std::string_view name,
                                  const LoggedTable& table) {
  file_.add_text(moment, name, markdown_table(name, table));
}

void TensorBoardLogger::finish(bool success) {
  if (in_session_) file_.end_session(moment_at(0).time, success);
}

}  // namespace lockstep::report
