// A contact sheet: one image with rows of small pictures and their captions.
//
//   ContactSheet sheet({.title = "CIFAR-10 train", .column_titles = {"data set", "epoch 0"},
//                       .rows = 8, .cell_height = 96, .cell_width = 96});
//   sheet.show(0, 1, picture, {"frog"});
//   write_file_atomically("sheet.png", sheet.png());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/report/canvas.h>

namespace lockstep::report {

/// Maximum side of a sheet, in pixels, and maximum number of its pixels.
constexpr std::int64_t kMaximumSheetSide = 32768;
constexpr std::int64_t kMaximumSheetPixels = std::int64_t{1} << 26;

struct ContactSheetLayout {
  std::string title{};                       ///< shortened if too long
  std::vector<std::string> notes{};          ///< below the title, wrapped
  std::vector<std::string> column_titles{};  ///< one per column; the first column is set apart
  std::int64_t rows = 0;
  std::int64_t cell_height = 0;  ///< pixels of the largest picture
  std::int64_t cell_width = 0;
  std::int64_t caption_lines = 1;
};

/// Text is 8 pixels high, or 16 if cells are at least 192 pixels wide; the title is 8 pixels
/// higher. Not thread-safe.
class ContactSheet {
 public:
  /// Throws ConfigError, before allocating memory, if the sheet would exceed the limits above.
  explicit ContactSheet(ContactSheetLayout layout);

  std::int64_t height() const { return canvas_.picture().height; }
  std::int64_t width() const { return canvas_.picture().width; }

  /// Shows `picture` in the middle of a cell, enlarged by the largest whole factor that fits, with
  /// the lines of `caption` below, shortened to the cell's width. Throws InternalError if there is
  /// no such cell, or if the picture or caption is too large for it.
  void show(std::int64_t row, std::int64_t column, const Picture& picture,
            const std::vector<std::string>& caption);

  /// The upper left corner of a cell, and of a picture that fills it.
  PixelPosition cell(std::int64_t row, std::int64_t column) const;
  /// The upper left corner of a line of a cell's caption.
  PixelPosition caption(std::int64_t row, std::int64_t column, std::int64_t line) const;

  const Canvas& canvas() const { return canvas_; }
  std::string png() const { return canvas_.png(); }

 private:
  ContactSheetLayout layout_;
  std::int64_t text_scale_;
  std::vector<std::string> notes_;  // wrapped
  std::int64_t first_row_;          // pixels from the top
  Canvas canvas_;
};

}  // namespace lockstep::report
