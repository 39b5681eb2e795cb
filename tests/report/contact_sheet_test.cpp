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
}

}  // namespace
}  // namespace lockstep::testing_support
