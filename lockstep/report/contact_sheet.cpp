#include <lockstep/report/contact_sheet.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/report/bitmap_font.h>

namespace lockstep::report {
namespace {

constexpr Color kPaper = {250, 250, 250};
constexpr Color kCell = {226, 226, 226};   // around a picture smaller than its cell
constexpr Color kFrame = {206, 206, 206};  // one pixel wide
constexpr Color kInk = {24, 24, 24};
constexpr Color kPaleInk = {96, 96, 96};

// In pixels, except for text sizes, which are multiplied by the text's scale.
constexpr std::int64_t kMargin = 14;
constexpr std::int64_t kGap = 8;           // between cells
constexpr std::int64_t kFirstColumn = 12;  // additional gap after the first column
constexpr std::int64_t kLine = kGlyphHeight + 3;
constexpr std::int64_t kCaption = 3;  // between a cell and its caption
constexpr std::int64_t kMinimumWidth = 320;

std::int64_t text_scale(const ContactSheetLayout& layout) {
  return layout.cell_width >= 192 ? 2 : 1;
}

std::int64_t title_scale(const ContactSheetLayout& layout) { return text_scale(layout) + 1; }

std::size_t columns_in(std::int64_t width, std::int64_t scale) {
  return static_cast<std::size_t>(
      std::max<std::int64_t>((width / scale + kGlyphAdvance - kGlyphWidth) / kGlyphAdvance, 1));
}

std::int64_t left_of(const ContactSheetLayout& layout, std::int64_t column) {
  return kMargin + column * (layout.cell_width + kGap) + (column > 0 ? kFirstColumn : 0);
}

std::int64_t sheet_width(const ContactSheetLayout& layout) {
  const auto columns = static_cast<std::int64_t>(layout.column_titles.size());
  return std::max(left_of(layout, columns) - kGap + kMargin, kMinimumWidth);
}

std::int64_t row_height(const ContactSheetLayout& layout) {
  return layout.cell_height + (kCaption + layout.caption_lines * kLine) * text_scale(layout) + kGap;
}

std::vector<std::string> wrapped_notes(const ContactSheetLayout& layout) {
  const std::size_t columns = columns_in(sheet_width(layout) - 2 * kMargin, text_scale(layout));
  std::vector<std::string> lines;
  for (const std::string& note : layout.notes) {
    const std::vector<std::string> wrapped = wrap_text(note, columns);
    lines.insert(lines.end(), wrapped.begin(), wrapped.end());
  }
  return lines;
}

std::int64_t header_height(const ContactSheetLayout& layout, std::size_t notes) {
  const std::int64_t lines =
      static_cast<std::int64_t>(notes) + 1;  // includes the line of column titles
  return kMargin + title_scale(layout) * kLine + (lines * kLine + kCaption) * text_scale(layout) +
         kGap;
}

// The canvas, after checking that its size is allowed.
Canvas blank(const ContactSheetLayout& layout, std::int64_t first_row) {
  const std::int64_t width = sheet_width(layout);
  const std::int64_t height = first_row + layout.rows * row_height(layout) - kGap + kMargin;
  if (std::max(height, width) > kMaximumSheetSide || height * width > kMaximumSheetPixels) {
    throw ConfigError(str("contact sheet: ", layout.rows, " rows of ", layout.column_titles.size(),
                          " cells of ", layout.cell_height, "x", layout.cell_width,
                          " pixels make an image of ", height, "x", width, ", the most is ",
                          kMaximumSheetSide, " on a side and ", kMaximumSheetPixels,
                          " in all; show fewer or smaller ones"));
  }
  return Canvas(height, width, kPaper);
}

}  // namespace

ContactSheet::ContactSheet(ContactSheetLayout layout)
    : layout_(std::move(layout)),
      text_scale_(text_scale(layout_)),
      notes_(wrapped_notes(layout_)),
      first_row_(header_height(layout_, notes_.size())),
      canvas_(blank(layout_, first_row_)) {
  const std::int64_t text_width = width() - 2 * kMargin;
  PixelPosition at = {kMargin, kMargin};
  const std::int64_t scale = title_scale(layout_);
  canvas_.write(at, cut_text(layout_.title, columns_in(text_width, scale)), kInk, scale);
  at.y += scale * kLine;
  for (const std::string& note : notes_) {
    canvas_.write(at, note, kInk, text_scale_);
    at.y += kLine * text_scale_;
  }
  const std::size_t columns = columns_in(layout_.cell_width, text_scale_);
  for (std::size_t i = 0; i < layout_.column_titles.size(); ++i) {
    const std::int64_t x = left_of(layout_, static_cast<std::int64_t>(i));
    canvas_.write({x, first_row_ - kLine * text_scale_},
                  cut_text(layout_.column_titles[i], columns), kPaleInk, text_scale_);
  }
}

PixelPosition ContactSheet::cell(std::int64_t row, std::int64_t column) const {
  const auto columns = static_cast<std::int64_t>(layout_.column_titles.size());
  LOCKSTEP_CHECK(row >= 0 && row < layout_.rows && column >= 0 && column < columns, "cell (", row,
                 ", ", column, ") of a sheet of ", layout_.rows, "x", columns);
  return {left_of(layout_, column), first_row_ + row * row_height(layout_)};
}

PixelPosition ContactSheet::caption(std::int64_t row, std::int64_t column,
                                    std::int64_t line) const {
  const auto [x, y] = cell(row, column);
  return {x, y + layout_.cell_height + (kCaption + line * kLine) * text_scale_};
}

void ContactSheet::show(std::int64_t row, std::int64_t column, const Picture& picture,
                        const std::vector<std::string>& caption_text) {
  const auto [x, y] = cell(row, column);
  const std::int64_t height = layout_.cell_height;
  const std::int64_t width = layout_.cell_width;
  const auto lines = static_cast<std::int64_t>(caption_text.size());
  const std::int64_t scale = std::min(height / picture.height, width / picture.width);
  LOCKSTEP_CHECK(scale >= 1 && lines <= layout_.caption_lines, "a picture of ", picture.height, "x",
                 picture.width, " and ", lines, " lines in a cell of ", height, "x", width, " and ",
                 layout_.caption_lines);
  canvas_.fill({x - 1, y - 1}, height + 2, width + 2, kFrame);
  canvas_.fill({x, y}, height, width, kCell);
  canvas_.draw({x + (width - picture.width * scale) / 2, y + (height - picture.height * scale) / 2},
               picture, scale);
  for (std::int64_t i = 0; i < lines; ++i) {
    canvas_.write(caption(row, column, i),
                  cut_text(caption_text[i], columns_in(width, text_scale_)), kInk, text_scale_);
  }
}

}  // namespace lockstep::report
