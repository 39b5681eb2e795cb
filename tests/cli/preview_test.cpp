#include <lockstep/cli/data/preview.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/report/bitmap_font.h>
#include <lockstep/report/text.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Normalize kColor = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
const Normalize kGrey = {{0.1307}, {0.3081}};

// Images of random bytes with the labels 0, 1, ..., classes - 1, 0, ...
ImageDataset noise(std::int64_t size, const ImageShape& shape, std::int64_t classes,
                   std::vector<std::string> names = {}) {
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(size * (shape.elements() + 1));
  PhiloxStream random(7, 0, 0);
  for (std::uint8_t& byte : *bytes) byte = static_cast<std::uint8_t>(random.below(256));
  for (std::int64_t i = 0; i < size; ++i) {
    (*bytes)[i * (shape.elements() + 1)] = static_cast<std::uint8_t>(i % classes);
  }
  ImageShard shard{.images = bytes->data() + 1,
                   .image_stride = shape.elements() + 1,
                   .labels = bytes->data(),
                   .label_stride = shape.elements() + 1,
                   .count = size,
                   .keep_alive = bytes};
  return ImageDataset("noise", shape, classes, std::vector{shard}, std::move(names));
}

// Pixel (x, y) of an image with the colour that a sheet shows.
report::Color pixel_of(const ImageView& view, std::int64_t x, std::int64_t y) {
  const auto at = [&](std::int64_t c) {
    return view.pixels[std::min(c, view.shape.channels - 1) * view.channel_stride +
                       y * view.row_stride + x * view.pixel_stride];
  };
  return {at(0), at(1), at(2)};
}

// The number of pixels in a cell that differ from `expected(x, y)`. Each pixel is `scale` wide.
template <class Expected>
int differences(const report::ContactSheet& sheet, std::int64_t row, std::int64_t column,
                ImageSize size, std::int64_t scale, const Expected& expected) {
  const auto [left, top] = sheet.cell(row, column);
  int count = 0;
  for (std::int64_t y = 0; y < size.height * scale; ++y) {
    for (std::int64_t x = 0; x < size.width * scale; ++x) {
      if (sheet.canvas().at({left + x, top + y}) != expected(x / scale, y / scale)) ++count;
    }
  }
  return count;
}

// Whether a line of a cell's caption is `text`, for cells that are 96 pixels wide.
bool is_caption(const report::ContactSheet& sheet, std::int64_t row, std::int64_t column,
                std::int64_t line, const std::string& text) {
  constexpr report::Color kInk = {24, 24, 24};
  report::Canvas expected(report::kGlyphHeight, 96, {250, 250, 250});
  expected.write({0, 0}, text, kInk);
  const report::PixelPosition corner = sheet.caption(row, column, line);
  for (std::int64_t y = 0; y < report::kGlyphHeight; ++y) {
    for (std::int64_t x = 0; x < 96; ++x) {
      const report::Color shown = sheet.canvas().at({corner.x + x, corner.y + y});
      if ((shown == kInk) != (expected.at({x, y}) == kInk)) return false;
    }
  }
  return true;
}

// Whether everything above the first cell is as on a sheet with this layout.
bool has_head_of(const report::ContactSheet& sheet, report::ContactSheetLayout layout) {
  const report::ContactSheet expected(std::move(layout));
  const std::int64_t below = sheet.cell(0, 0).y - 1;  // the frame of the cell
  if (sheet.width() != expected.width() || below != expected.cell(0, 0).y - 1) return false;
  for (std::int64_t y = 0; y < below; ++y) {
    for (std::int64_t x = 0; x < sheet.width(); ++x) {
      if (sheet.canvas().at({x, y}) != expected.canvas().at({x, y})) return false;
    }
  }
  return true;
}

TEST(Preview, BeginsWithWhatItShows) {
  const std::pair<BatchMix, const char*> mixes[] = {{std::monostate(), ""},
                                                    {MixUp{}, ", MixUp"},
                                                    {CutMix{}, ", CutMix"},
                                                    {RandomMix{}, ", MixUp or CutMix"}};
  for (const auto& [mix, words] : mixes) {
    const cli::Preview preview =
        cli::make_preview(noise(4, {3, 8, 8}, 2), {Pad{1}, kColor},
                          {.images = 3, .versions = 2, .seed = 9, .epoch = 5, .mix = mix});
    const report::ContactSheetLayout layout{
        .title = "noise",
        .notes = {std::string("Pad, Normalize") + words,
                  "4 images in 2 classes, native loader, seed 9"},
        .column_titles = {"data set", "epoch 5", "epoch 6"},
        .rows = 3,
        .cell_height = 100,
        .cell_width = 100,
        .caption_lines = 2};
    EXPECT_TRUE(has_head_of(preview.sheet, layout)) << words;
    report::ContactSheetLayout other = layout;
    other.column_titles[2] = "epoch 7";
    EXPECT_FALSE(has_head_of(preview.sheet, other));
    EXPECT_EQ(preview.rows.at(0).versions.at(1).epoch, 6);
    EXPECT_THAT(preview.rows, SizeIs(3));
  }
}

TEST(Preview, NamesTheClassesOfItsImages) {
  struct Case {
    std::vector<std::string> class_names;
    std::vector<std::string> captions;
  };
  const Case cases[] = {{{"cat", "dog"}, {"cat", "dog"}},
                        {{}, {"0", "1"}},
                        {{"\u732b", "dog"}, {"0: \u732b", "dog"}}};  // the font has no such sign
  for (const auto& [class_names, captions] : cases) {
    const cli::Preview preview =
        cli::make_preview(noise(2, {3, 8, 8}, 2, class_names), {kColor}, {.versions = 1});
    ASSERT_THAT(preview.rows, SizeIs(2));
    for (std::int64_t row = 0; row < 2; ++row) {
      EXPECT_TRUE(is_caption(preview.sheet, row, 0, 0, captions[row])) << captions[row];
      EXPECT_TRUE(
          is_caption(preview.sheet, row, 0, 1, "#" + std::to_string(preview.rows[row].index)));
      EXPECT_TRUE(is_caption(preview.sheet, row, 1, 0, captions[row])) << captions[row];
      EXPECT_TRUE(is_caption(preview.sheet, row, 1, 1, ""));
      EXPECT_FALSE(is_caption(preview.sheet, row, 1, 0, captions[1 - row])) << captions[row];
    }
  }
}

TEST(Preview, NamesTheSharesOfMixedClasses) {
  const std::vector<std::string> names = {"cat", "dog"};
  const cli::Preview preview =
      cli::make_preview(noise(2, {3, 8, 8}, 2, names), {kColor}, {.versions = 1, .mix = MixUp{}});
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto& shares = preview.rows[row].versions[0].shares;
    ASSERT_THAT(shares, SizeIs(2));
    for (std::int64_t line = 0; line < 2; ++line) {
      const auto& [label, share] = shares[line];
      EXPECT_TRUE(is_caption(preview.sheet, row, 1, line,
                             report::fixed_text(100 * share, 0) + "% " + names[label]));
    }
    EXPECT_TRUE(is_caption(preview.sheet, row, 0, 0, names[row])) << "the data set's own image";
  }
}

TEST(Preview, UndoesNormalizeExactly) {
  for (const std::int64_t channels : {1, 3}) {
    const ImageDataset dataset = noise(3, {channels, 24, 32}, 3);
    const cli::Preview preview =
        cli::make_preview(dataset, {channels == 1 ? kGrey : kColor}, {.versions = 2});
    ASSERT_THAT(preview.rows, SizeIs(3)) << "the data set has no more";
    for (std::int64_t row = 0; row < 3; ++row) {
      const ImageView view = dataset.image(preview.rows[row].index);
      for (std::int64_t column = 0; column < 3; ++column) {
        EXPECT_EQ(differences(preview.sheet, row, column, {24, 32}, 3,
                              [&](auto x, auto y) { return pixel_of(view, x, y); }),
                  0)
            << channels << " channels, row " << row << ", column " << column;
      }
    }
  }
}

TEST(Preview, ShowsWhatOperatorsDo) {
  const ImageDataset dataset = noise(2, {3, 8, 8}, 2);
  const cli::Preview mirrored =
      cli::make_preview(dataset, {RandomHorizontalFlip{1}, kColor}, {.versions = 1, .scale = 2});
  // Erases 6x6 of 8x8 pixels.
  const RandomErasing erasing{
      .probability = 1, .scale = {0.5625, 0.5625}, .ratio = {1, 1}, .value = 1e9};
  const cli::Preview erased =
      cli::make_preview(dataset, {kColor, erasing}, {.versions = 1, .scale = 1});
  const cli::Preview grey = cli::make_preview(dataset, {Grayscale{}, Normalize{{0.5}, {0.5}}},
                                              {.versions = 1, .scale = 1});
  for (std::int64_t row = 0; row < 2; ++row) {
    const ImageView view = dataset.image(mirrored.rows[row].index);
    EXPECT_EQ(differences(mirrored.sheet, row, 1, 8, 2,
                          [&](auto x, auto y) { return pixel_of(view, 7 - x, y); }),
              0);
    EXPECT_EQ(differences(erased.sheet, row, 1, 8, 1,
                          [](auto, auto) { return report::Color{255, 255, 255}; }),
              64 - 36)
        << "what no byte becomes is cut to one";
    const report::Color pixel = grey.sheet.canvas().at(grey.sheet.cell(row, 1));
    EXPECT_TRUE(pixel.red == pixel.green && pixel.green == pixel.blue);
    EXPECT_EQ(
        differences(grey.sheet, row, 0, 8, 1, [&](auto x, auto y) { return pixel_of(view, x, y); }),
        0)
        << "the data set's image keeps its colours";
  }
}

// An image's random choices depend only on its index in the data set, so that the sheet shows the
// images of a run.
TEST(Preview, ShowsTheVersionsOfATrainingRun) {
  const ImageDataset dataset = noise(40, {3, 8, 8}, 10);
  const Augmentation list = {Pad{4}, RandomCrop{8}, RandomHorizontalFlip{},
                             Normalize{{0, 0, 0}, {1, 1, 1}}};
  const cli::Preview preview = cli::make_preview(
      dataset, list, {.images = 12, .versions = 3, .scale = 1, .seed = 5, .epoch = 6});
  Loader loader(dataset, SequentialSampler(dataset.size()), list, {.batch_size = 40, .seed = 5});
  for (std::int64_t column = 1; column <= 3; ++column) {
    loader.set_epoch(5 + column);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    for (std::int64_t row = 0; row < 12; ++row) {
      const auto& [index, label, versions] = preview.rows[row];
      const torch::Tensor bytes = (batch.images[index] * 255).round().to(torch::kUInt8);
      const ImageView view =
          ImageView::planar(bytes.const_data_ptr<std::uint8_t>(), dataset.shape());
      EXPECT_EQ(differences(preview.sheet, row, column, 8, 1,
                            [&](auto x, auto y) { return pixel_of(view, x, y); }),
                0);
      EXPECT_EQ(versions[column - 1].epoch, 5 + column);
      EXPECT_THAT(versions[column - 1].shares, ElementsAre(std::pair(index % 10, 1.0)));
    }
  }
}

TEST(Preview, MixesARowWithTheOneAbove) {
  const auto bytes = std::make_shared<std::vector<std::uint8_t>>(32, 0);
  std::fill(bytes->begin() + 16, bytes->end(), 255);
  static constexpr std::uint8_t kLabels[] = {0, 1};
  const ImageDataset dataset("black and white", {1, 4, 4}, 2,
                             {ImageShard{bytes->data(), 16, kLabels, 1, 2, bytes}});
  const cli::Preview preview = cli::make_preview(dataset, {kGrey}, {.versions = 4, .mix = MixUp{}});
  ASSERT_EQ(preview.rows[0].label, 0);
  for (std::int64_t column = 1; column <= 4; ++column) {
    for (std::int64_t row = 0; row < 2; ++row) {
      const auto& shares = preview.rows[row].versions[column - 1].shares;
      ASSERT_THAT(shares, SizeIs(2));
      EXPECT_GE(shares[0].second, shares[1].second);
      EXPECT_NEAR(shares[0].second + shares[1].second, 1, 1e-6);
      const double white = shares[shares[0].first == 1 ? 0 : 1].second;
      const report::Color color = preview.sheet.canvas().at(preview.sheet.cell(row, column));
      EXPECT_NEAR(color.red, 255 * white, 0.51) << "row " << row << ", column " << column;
    }
  }
}

// Three classes, of which an image has two: its own and that of the row above, or of the last row.
TEST(Preview, HasNoSharesOfClassesThatAreNotInTheImage) {
  const std::vector<std::string> names = {"cat", "dog", "eel"};
  const cli::Preview preview =
      cli::make_preview(noise(3, {3, 8, 8}, 3, names), {kColor}, {.versions = 2, .mix = MixUp{}});
  ASSERT_THAT(preview.rows, SizeIs(3));
  for (std::int64_t row = 0; row < 3; ++row) {
    ASSERT_EQ(preview.rows[row].label, row);
    EXPECT_EQ(preview.rows[row].index, row);
    ASSERT_THAT(preview.rows[row].versions, SizeIs(2));
    for (const cli::PreviewVersion& version : preview.rows[row].versions) {
      ASSERT_THAT(version.shares, SizeIs(2));
      EXPECT_THAT(std::set<std::int64_t>({version.shares[0].first, version.shares[1].first}),
                  ElementsAre(std::min(row, (row + 2) % 3), std::max(row, (row + 2) % 3)));
      EXPECT_GE(version.shares[0].second, version.shares[1].second);
      EXPECT_GT(version.shares[1].second, 0);
    }
    const auto& [label, share] = preview.rows[row].versions[1].shares[0];
    EXPECT_TRUE(is_caption(preview.sheet, row, 2, 0,
                           report::fixed_text(100 * share, 0) + "% " + names[label]));
  }
}

TEST(Preview, ShrinksTheDataSetsImageToItsCell) {
  const ImageDataset dataset = noise(1, {3, 40, 20}, 1);
  const cli::Preview preview =
      cli::make_preview(dataset, {CenterCrop{8}, kColor}, {.versions = 1, .scale = 1});
  const auto [x, y] = preview.sheet.cell(0, 0);
  const report::Canvas& canvas = preview.sheet.canvas();
  const report::Color around = canvas.at({x, y});
  for (int row = 0; row < 8; ++row) {
    for (const int column : {0, 1, 6, 7}) EXPECT_EQ(canvas.at({x + column, y + row}), around);
    for (const int column : {2, 5}) EXPECT_NE(canvas.at({x + column, y + row}), around);
  }
}

TEST(Preview, ChoosesImagesOfAllClassesFirst) {
  const ImageDataset dataset = noise(100, {1, 2, 2}, 7);
  const auto labels_of = [&](const std::vector<std::int64_t>& indices) {
    std::vector<std::int64_t> labels;
    for (const std::int64_t index : indices) labels.push_back(dataset.label(index));
    return labels;
  };
  const auto chosen = cli::choose_preview_images(dataset, 9, 3);
  const auto labels = labels_of(chosen);
  EXPECT_THAT(std::vector(labels.begin(), labels.begin() + 7), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_NE(labels[7], labels[8]);
  EXPECT_NE(chosen[labels[7]], chosen[7]) << "another image of that class";
  EXPECT_EQ(cli::choose_preview_images(dataset, 9, 3), chosen);
  EXPECT_NE(cli::choose_preview_images(dataset, 9, 4), chosen);
  std::set<std::int64_t> shown;
  for (int seed = 0; seed < 20; ++seed) {
    const auto few = labels_of(cli::choose_preview_images(dataset, 3, seed));
    EXPECT_TRUE(few[0] < few[1] && few[1] < few[2]) << "each of another class, in order";
    shown.insert(few.begin(), few.end());
  }
  EXPECT_THAT(shown, SizeIs(7)) << "not the first classes each time";
  const auto all = cli::choose_preview_images(dataset, 1000, 0);
  EXPECT_THAT(std::set(all.begin(), all.end()), SizeIs(100));
}

// The epochs of all versions must have numbers of 32 bits.
TEST(Preview, ShowsEpochsUpToTheLast) {
  const ImageDataset dataset = noise(2, {1, 4, 4}, 2);
  constexpr std::int64_t kLast = 4294967295;
  const cli::Preview preview =
      cli::make_preview(dataset, {kGrey}, {.versions = 2, .epoch = kLast - 2});
  ASSERT_THAT(preview.rows, SizeIs(2));
  EXPECT_EQ(preview.rows[1].versions[0].epoch, kLast - 2);
  EXPECT_EQ(preview.rows[1].versions[1].epoch, kLast - 1);
  EXPECT_EQ(message_of<ConfigError>(
                [&] { cli::make_preview(dataset, {kGrey}, {.versions = 2, .epoch = kLast - 1}); }),
            "preview: --epoch must be from 0 to 4294967293, got 4294967294");
}

TEST(Preview, SaysWhatItCannotShow) {
  const ImageDataset dataset = noise(4, {3, 8, 8}, 2);
  struct Case {
    ImageDataset dataset;
    Augmentation list;
    cli::PreviewOptions options;
    const char* text;
  };
  const Case cases[] = {
      {dataset, {kColor}, {.images = 0}, "preview: --images must be from 1 to 4096, got 0"},
      {dataset, {kColor}, {.images = 4097}, "preview: --images must be from 1 to 4096, got 4097"},
      {dataset, {kColor}, {.versions = 0}, "preview: --versions must be from 1 to 4096, got 0"},
      {dataset, {kColor}, {.versions = 4097}, "preview: --versions must be from 1 to 4096"},
      {dataset, {kColor}, {.scale = 0}, "preview: --scale must be from 1 to 64, got 0"},
      {dataset, {kColor}, {.scale = 65}, "preview: --scale must be from 1 to 64, got 65"},
      {dataset, {kColor}, {.epoch = -1}, "preview: --epoch must be from 0"},
      {dataset, {kColor}, {.images = 1, .mix = CutMix{}}, "--mix needs at least 2 images, got 1"},
      {dataset, {kColor}, {.versions = 4096, .scale = 64}, "contact sheet: 4 rows of 4097 cells"},
      {dataset, {RandomCrop{9}, kColor}, {}, "RandomCrop"},
      {noise(1, {2, 8, 8}, 1), {Normalize{{0, 0}, {1, 1}}}, {}, "images of 2 channels"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { cli::make_preview(c.dataset, c.list, c.options); }),
                HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
