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

constexpr Color kBlack = {0, 0, 0};
constexpr Color kWhite = {255, 255, 255};

TEST(BitmapFont, HasADrawingOfItsOwnForEveryCharacter) {
  std::set<Glyph> drawings;
  for (char c = ' '; c <= '~'; ++c) drawings.insert(glyphs_of(std::string(1, c)).at(0));
  drawings.insert(glyphs_of("\u2026").at(0));
  EXPECT_EQ(drawings.size(), 96U);
  EXPECT_EQ(glyphs_of(" ").at(0), Glyph{});
  EXPECT_EQ(glyphs_of("T").at(0),
            (Glyph{0b11111, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0}));
}

TEST(BitmapFont, ShowsAQuestionMarkForWhatItLacks) {
  const auto question = glyphs_of("?").at(0);
  for (const char* text : {"\u00e9", "\u732b", "\U0001F431", "\n", "\x7f"}) {
    EXPECT_THAT(glyphs_of(text), ElementsAre(question));
    EXPECT_FALSE(can_draw(lockstep::str("a", text)));
  }
  EXPECT_EQ(glyphs_of("a\u732bb").size(), 3U);
  EXPECT_TRUE(can_draw("what?\u2026"));
}

TEST(BitmapFont, CutsText) {
  const std::tuple<const char*, std::size_t, const char*> cases[] = {
      {"", 1, ""},
      {"truck", 5, "truck"},
      {"truck", 4, "tru\u2026"},
      {"truck", 1, "\u2026"},
      {"\u00e9t\u00e9s", 4, "\u00e9t\u00e9s"},
      {"\u00e9t\u00e9s", 3, "\u00e9t\u2026"}};
  for (const auto& [text, columns, expected] : cases) EXPECT_EQ(cut_text(text, columns), expected);
}

TEST(BitmapFont, WrapsText) {
  EXPECT_THAT(wrap_text("", 9), ElementsAre());
  EXPECT_THAT(wrap_text("Pad, RandomCrop", 15), ElementsAre("Pad, RandomCrop"));
  EXPECT_THAT(wrap_text("Pad, RandomCrop, Normalize", 14),
              ElementsAre("Pad,", "RandomCrop,", "Normalize"));
  EXPECT_THAT(wrap_text(" a  b RandomCrop c", 6), ElementsAre("a b", "Rando\u2026", "c"));
}

// The number of pixels in which `canvas` differs from `text` drawn at `corner`; 0 if the text is
// there.
int differences(const Canvas& canvas, PixelPosition corner, std::string_view text, int scale) {
  int count = 0;
  const auto glyphs = glyphs_of(text);
  const Color paper = canvas.at({0, 0});
  const int width = static_cast<int>(glyphs.size()) * kGlyphAdvance * scale - scale;
  for (int y = 0; y < kGlyphHeight * scale; ++y) {
    for (int x = 0; x < width; ++x) {
      const int column = x / scale % kGlyphAdvance;
      const Glyph& glyph = glyphs[x / scale / kGlyphAdvance];
      const bool ink = column < kGlyphWidth && (glyph[y / scale] >> (4 - column) & 1) != 0;
      if ((canvas.at({corner.x + x, corner.y + y}) != paper) != ink) ++count;
    }
  }
  return count;
}

TEST(Canvas, WritesText) {
  for (const int scale : {1, 3}) {
    Canvas canvas(40, 120, kWhite);
    canvas.write({5, 7}, "Wag\u2026", kBlack, scale);
    EXPECT_EQ(differences(canvas, {5, 7}, "Wag\u2026", scale), 0);
    EXPECT_GT(differences(canvas, {5, 7}, "Wag.", scale), 0);
  }
}

TEST(Canvas, RefusesWhatLiesOutside) {
  Canvas canvas(8, 10, kWhite);
  canvas.fill({9, 7}, 1, 1, kBlack);
  EXPECT_THROW(canvas.fill({9, 7}, 1, 2, kBlack), InternalError);
  EXPECT_THROW(canvas.fill({9, 7}, 2, 1, kBlack), InternalError);
  EXPECT_THROW(canvas.fill({-1, 0}, 1, 1, kBlack), InternalError);
  EXPECT_THROW(canvas.draw({7, 0}, Picture(2, 2), 2), InternalError);
}

TEST(Canvas, BecomesAPng) {
  Canvas canvas(2, 3, kWhite);
  canvas.fill({2, 1}, 1, 1, {1, 2, 3});
  const std::string file = canvas.png();
  PngDecoder decoder;
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

ContactSheetLayout small_layout() {
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
  ContactSheet sheet(small_layout());
  Picture picture(8, 9);  // twice as large: 16x18 in the middle of 20x30
  for (std::size_t i = 0; i < picture.rgb.size(); ++i)
    picture.rgb[i] = static_cast<std::uint8_t>(i);
  sheet.show(1, 1, picture, {});
  const auto [left, top] = sheet.cell(1, 1);
  const Color around = sheet.canvas().at({left, top});
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 30; ++x) {
      Color expected = around;
      if (y >= 2 && y < 18 && x >= 6 && x < 24) {
        const std::uint8_t* pixel = picture.pixel((x - 6) / 2, (y - 2) / 2);
        expected = {pixel[0], pixel[1], pixel[2]};
      }
      ASSERT_EQ(sheet.canvas().at({left + x, top + y}), expected) << x << ", " << y;
    }
  }
}

TEST(ContactSheet, WritesCaptionsAndCutsThem) {
  ContactSheet sheet(small_layout());
  sheet.show(0, 1, Picture(20, 30), {"truck", "a truck"});
  const Canvas& canvas = sheet.canvas();
  EXPECT_EQ(differences(canvas, sheet.caption(0, 1, 0), "truck", 1), 0);
  EXPECT_EQ(differences(canvas, sheet.caption(0, 1, 1), "a tr\u2026", 1), 0);
}

TEST(ContactSheet, EnlargesTextOfLargeCells) {
  ContactSheetLayout layout = small_layout();
  layout.cell_width = 192;
  ContactSheet sheet(layout);
  sheet.show(1, 0, Picture(20, 192), {"truck"});
  EXPECT_EQ(differences(sheet.canvas(), sheet.caption(1, 0, 0), "truck", 2), 0);
}

TEST(ContactSheet, HasRoomForAllOfItsHeader) {
  ContactSheetLayout layout = small_layout();
  const std::int64_t wrapped = ContactSheet(layout).height();
  layout.notes = {"Pad"};
  EXPECT_EQ(wrapped - ContactSheet(layout).height(), kGlyphHeight + 3) << "a second line";
}

TEST(ContactSheet, RefusesWhatDoesNotFit) {
  ContactSheet sheet(small_layout());
  EXPECT_THROW(sheet.show(2, 0, Picture(1, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 2, Picture(1, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 0, Picture(21, 1), {}), InternalError);
  EXPECT_THROW(sheet.show(0, 0, Picture(1, 1), {"1", "2", "3"}), InternalError);
}

TEST(ContactSheet, IsNoLargerThanCanBeShown) {
  ContactSheetLayout layout = small_layout();
  layout.rows = 4096;
  layout.cell_height = layout.cell_width = std::int64_t{1} << 22;
  EXPECT_THAT(message_of<ConfigError>([&] { ContactSheet{layout}; }),
              HasSubstr("4096 rows of 2 cells of 4194304x4194304 pixels make an image of"));
  layout.rows = 1;
  layout.cell_height = layout.cell_width = 8200;  // each side alone is allowed
  EXPECT_THROW(ContactSheet{layout}, ConfigError);
}

}  // namespace
}  // namespace lockstep::testing_support
