#include <lockstep/report/contact_sheet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <lockstep/report/bitmap_font.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr report::Color kBlack = {0, 0, 0};
constexpr report::Color kWhite = {255, 255, 255};

TEST(BitmapFont, HasADrawingOfItsOwnForEveryCharacter) {
  std::set<report::Glyph> drawings;
  for (char c = ' '; c <= '~'; ++c) drawings.insert(report::glyphs_of(std::string(1, c)).at(0));
  drawings.insert(report::glyphs_of("\u2026").at(0));
  EXPECT_EQ(drawings.size(), 96U);
  EXPECT_EQ(report::glyphs_of(" ").at(0), report::Glyph{});
  EXPECT_EQ(report::glyphs_of("T").at(0),
            (report::Glyph{0b11111, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0}));
}

TEST(BitmapFont, ShowsAQuestionMarkForWhatItLacks) {
  const auto question = report::glyphs_of("?").at(0);
  for (const char* text : {"\u00e9", "\u732b", "\U0001F431", "\n", "\x7f"}) {
    EXPECT_THAT(report::glyphs_of(text), ElementsAre(question));
    EXPECT_FALSE(report::can_draw(lockstep::str("a", text)));
  }
  EXPECT_EQ(report::glyphs_of("a\u732bb").size(), 3U);
  EXPECT_TRUE(report::can_draw("what?\u2026"));
}

TEST(BitmapFont, CutsText) {
  const std::tuple<const char*, std::size_t, const char*> cases[] = {
      {"", 1, ""},
      {"truck", 5, "truck"},
      {"truck", 4, "tru\u2026"},
      {"truck", 1, "\u2026"},
      {"\u00e9t\u00e9s", 4, "\u00e9t\u00e9s"},
      {"\u00e9t\u00e9s", 3, "\u00e9t\u2026"}};
  for (const auto& [text, columns, expected] : cases)
    EXPECT_EQ(report::cut_text(text, columns), expected);
}

TEST(BitmapFont, WrapsText) {
  EXPECT_THAT(report::wrap_text("", 9), ElementsAre());
  EXPECT_THAT(report::wrap_text("Pad, RandomCrop", 15), ElementsAre("Pad, RandomCrop"));
  EXPECT_THAT(report::wrap_text("Pad, RandomCrop, Normalize", 14),
              ElementsAre("Pad,", "RandomCrop,", "Normalize"));
  EXPECT_THAT(report::wrap_text(" a  b RandomCrop c", 6), ElementsAre("a b", "Rando\u2026", "c"));
}

// The number of pixels in which `canvas` differs from `text` drawn at `corner`; 0 if the text is
// there.
int differences(const report::Canvas& canvas, report::PixelPosition corner, std::string_view text,
                int scale) {
  int count = 0;
  const auto glyphs = report::glyphs_of(text);
  const report::Color paper = canvas.at({0, 0});
  const int width = static_cast<int>(glyphs.size()) * report::kGlyphAdvance * scale - scale;
  for (int y = 0; y < report::kGlyphHeight * scale; ++y) {
    for (int x = 0; x < width; ++x) {
      const int column = x / scale % report::kGlyphAdvance;
      const report::Glyph& glyph = glyphs[x / scale / report::kGlyphAdvance];
      const bool ink = column < report::kGlyphWidth && (glyph[y / scale] >> (4 - column) & 1) != 0;
      if ((canvas.at({corner.x + x, corner.y + y}) != paper) != ink) ++count;
    }
  }
  return count;
}

TEST(Canvas, WritesText) {
  for (const int scale : {1, 3}) {
    report::Canvas canvas(40, 120, kWhite);
    canvas.write({5, 7}, "Wag\u2026", kBlack, scale);
    EXPECT_EQ(differences(canvas, {5, 7}, "Wag\u2026", scale), 0);
    EXPECT_GT(differences(canvas, {5, 7}, "Wag.", scale), 0);
  }
}

TEST(Canvas, RefusesWhatLiesOutside) {
  report::Canvas canvas(8, 10, kWhite);
  canvas.fill({9, 7}, 1, 1, kBlack);
  EXPECT_THROW(canvas.fill({9, 7}, 1, 2, kBlack), InternalError);
  EXPECT_THROW(canvas.fill({9, 7}, 2, 1, kBlack), InternalError);
  EXPECT_THROW(canvas.fill({-1, 0}, 1, 1, kBlack), InternalError);
  EXPECT_THROW(canvas.draw({7, 0}, report::Picture(2, 2), 2), InternalError);
}

TEST(Canvas, BecomesAPng) {
  report::Canvas canvas(2, 3, kWhite);
  canvas.fill({2, 1}, 1, 1, {1, 2, 3});
  const std::string file = canvas.png();
  detail::PngDecoder decoder;
  const ImageHeader header =
      decoder.open(std::as_bytes(std::span<const char>(file.data(), file.size())), "canvas");
  ASSERT_EQ(header.width, 3);
  ASSERT_EQ(header.height, 2);
  std::vector<std::uint8_t> pixels(18, 0);
  decoder.decode(whole(header), pixels);
  std::vector<std::uint8_t> expected(18, 255);
  expected[15] = 1;
  expected[16] = 2;
  expected[17] = 3;
  EXPECT_EQ(pixels, expected);
}

report::ContactSheetLayout small_layout() {
  return {
      .title = "a title",
      .notes = {"Pad, RandomCrop, RandomHorizontalFlip, RandomRotation, ColorJitter, Normalize"},
      .column_titles = {"data set", "epoch 0"},
      .rows = 2,
      .cell_height = 20,
      .cell_width = 30,
      .caption_lines = 2};
}

TEST(ContactSheet, ShowsPicturesAsLargeAsAWholeFactorAllows) {
  report::ContactSheet sheet(small_layout());
  report::Picture picture(8, 9);  // twice as large: 16x18 in the middle of 20x30
  for (std::size_t i = 0; i < picture.rgb.size(); ++i)
    picture.rgb[i] = static_cast<std::uint8_t>(i);
  sheet.show(1, 1, picture, {});
  const auto [left, top] = sheet.cell(1, 1);
  const report::Color around = sheet.canvas().at({left, top});
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 30; ++x) {
      report::Color expected = around;
      if (y >= 2 && y < 18 && x >= 6 && x < 24) {
        const std::uint8_t* pixel = picture.pixel((x - 6) / 2, (y - 2) / 2);
        expected = {pixel[0], pixel[1], pixel[2]};
      }
      ASSERT_EQ(sheet.canvas().at({left + x, top + y}), expected) << x << ", " << y;
    }
  }
}

TEST(ContactSheet, WritesCaptionsAndCutsThem) {
  report::ContactSheet sheet(small_layout());
  sheet.show(0, 1, report::Picture(20, 30), {"truck", "a truck"});
  const report::Canvas& canvas = sheet.canvas();
  EXPECT_EQ(differences(canvas, sheet.caption(0, 1, 0), "truck", 1), 0);
  EXPECT_EQ(differences(canvas, sheet.caption(0, 1, 1), "a tr\u2026", 1), 0);
}

TEST(ContactSheet, EnlargesTextOfLargeCells) {
  report::ContactSheetLayout layout = small_layout();
  layout.cell_width = 192;
  report::ContactSheet sheet(layout);
  sheet.show(1, 0, report::Picture(20, 192), {"truck"});
  EXPECT_EQ(differences(sheet.canvas(), sheet.caption(1, 0, 0), "truck", 2), 0);
}

// The margin is 14 pixels wide; a line of text takes 11, and one of a title twice as many.
TEST(ContactSheet, HasAPlaceForEachPart) {
  report::ContactSheetLayout layout = small_layout();
  layout.title = std::string(24, 'w');           // as wide as the sheet without its margins
  layout.notes = {std::string(48, 'n'), "Pad"};  // likewise
  report::ContactSheet sheet(layout);
  EXPECT_EQ(sheet.width(), 320) << "at least";
  EXPECT_EQ(sheet.cell(0, 0), (report::PixelPosition{14, 80}));
  EXPECT_EQ(sheet.cell(0, 1), (report::PixelPosition{64, 80}));
  EXPECT_EQ(sheet.cell(1, 0), (report::PixelPosition{14, 133}));
  EXPECT_EQ(sheet.caption(1, 1, 0), (report::PixelPosition{64, 156}));
  EXPECT_EQ(sheet.caption(1, 1, 1), (report::PixelPosition{64, 167}));
  EXPECT_EQ(sheet.height(), 192);
  EXPECT_EQ(differences(sheet.canvas(), {14, 14}, layout.title, 2), 0);
  EXPECT_EQ(differences(sheet.canvas(), {14, 36}, layout.notes[0], 1), 0);
  EXPECT_EQ(differences(sheet.canvas(), {14, 47}, "Pad", 1), 0);
  EXPECT_EQ(differences(sheet.canvas(), {14, 69}, "data\u2026", 1), 0);
  EXPECT_EQ(differences(sheet.canvas(), {64, 69}, "epoc\u2026", 1), 0);
  sheet.show(0, 0, report::Picture(1, 1), {});
  constexpr report::Color kFrame = {206, 206, 206};
  EXPECT_EQ(sheet.canvas().at({13, 79}), kFrame);
  EXPECT_EQ(sheet.canvas().at({44, 100}), kFrame);
  EXPECT_EQ(sheet.canvas().at({14, 80}), (report::Color{226, 226, 226}));
  EXPECT_EQ(sheet.canvas().at({43, 99}), (report::Color{226, 226, 226}));
  EXPECT_EQ(sheet.canvas().at({12, 79}), (report::Color{250, 250, 250}));
  EXPECT_EQ(sheet.canvas().at({45, 100}), (report::Color{250, 250, 250}));
  layout.title += 'w';
  layout.notes = {std::string(49, 'n')};
  const report::ContactSheet cut(layout);
  EXPECT_EQ(differences(cut.canvas(), {14, 14}, std::string(23, 'w') + "\u2026", 2), 0);
  EXPECT_EQ(differences(cut.canvas(), {14, 36}, std::string(47, 'n') + "\u2026", 1), 0);
}

// Texts are twice as large from 192 pixels on.
TEST(ContactSheet, HasAPlaceForEachLargePart) {
  report::ContactSheetLayout layout = small_layout();
  layout.notes = {"Pad"};
  layout.cell_width = 191;
  EXPECT_EQ(report::ContactSheet(layout).cell(0, 0), (report::PixelPosition{14, 69}));
  EXPECT_EQ(report::ContactSheet(layout).width(), 430);
  layout.cell_width = 192;
  const report::ContactSheet sheet(layout);
  EXPECT_EQ(sheet.width(), 432);
  EXPECT_EQ(sheet.cell(0, 0), (report::PixelPosition{14, 105}));
  EXPECT_EQ(sheet.cell(1, 1), (report::PixelPosition{226, 183}));
  EXPECT_EQ(sheet.caption(0, 0, 1), (report::PixelPosition{14, 153}));
  EXPECT_EQ(sheet.height(), 267);
  EXPECT_EQ(differences(sheet.canvas(), {14, 14}, "a title", 3), 0);
  EXPECT_EQ(differences(sheet.canvas(), {14, 47}, "Pad", 2), 0);
  EXPECT_EQ(differences(sheet.canvas(), {226, 83}, "epoch 0", 2), 0);
}

TEST(ContactSheet, HasRoomForAllOfItsHeader) {
  report::ContactSheetLayout layout = small_layout();
  const std::int64_t wrapped = report::ContactSheet(layout).height();
  layout.notes = {"Pad"};
  EXPECT_EQ(wrapped - report::ContactSheet(layout).height(), report::kGlyphHeight + 3)
      << "a second line";
}

TEST(ContactSheet, RefusesWhatDoesNotFit) {
  report::ContactSheet sheet(small_layout());
  EXPECT_THROW(sheet.show(2, 0, report::Picture(1, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 2, report::Picture(1, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 0, report::Picture(21, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 0, report::Picture(1, 1), {"1", "2", "3"}), InternalError);
}

TEST(ContactSheet, IsNoLargerThanCanBeShown) {
  report::ContactSheetLayout layout = small_layout();
  layout.rows = 4096;
  layout.cell_height = layout.cell_width = std::int64_t{1} << 22;
  EXPECT_THAT(message_of<ConfigError>([&] { report::ContactSheet{layout}; }),
              HasSubstr("4096 rows of 2 cells of 4194304x4194304 pixels make an image of"));
  layout.rows = 1;
  layout.cell_height = layout.cell_width = 8200;  // each side alone is allowed
  EXPECT_THROW(report::ContactSheet{layout}, ConfigError);
  layout.notes = {"Pad"};
  layout.cell_width = 30;
  layout.cell_height = 32660;
  EXPECT_EQ(report::ContactSheet(layout).height(), report::kMaximumSheetSide);
  const std::int64_t width = report::ContactSheet(layout).width();
  ++layout.cell_height;
  EXPECT_EQ(message_of<ConfigError>([&] { report::ContactSheet{layout}; }),
            str("contact sheet: 1 rows of ", layout.column_titles.size(),
                " cells of 32661x30 pixels make an image of 32769x", width,
                ", the most is 32768 on a side and 67108864 in all; show fewer or smaller ones"));
}

}  // namespace
}  // namespace lockstep::testing_support
