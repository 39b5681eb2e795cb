// Compares a JPEG that is decoded at a reduced size and then resized with one that is decoded at
// full size and then resized.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <lockstep/core/philox.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/resample.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/images/image_reader.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using Decoding = ImageReader::Decoding;

// Counts the absolute differences between bytes and their expected values.
struct Differences {
  std::vector<std::int64_t> counts = std::vector<std::int64_t>(256);  // indexed by the difference
  std::int64_t bytes = 0;

  void add(const ImageView& got, const ImageView& expected) {
    ASSERT_EQ(got.shape, expected.shape);
    for (std::int64_t i = 0; i < got.shape.elements(); ++i) {
      ++counts[static_cast<std::size_t>(std::abs(got.pixels[i] - expected.pixels[i]))];
    }
    bytes += got.shape.elements();
  }
  double mean() const {
    double sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) sum += static_cast<double>(i) * counts[i];
    return sum / static_cast<double>(bytes);
  }
  double share_within(std::size_t most) const {
    std::int64_t within = 0;
    for (std::size_t i = 0; i <= most; ++i) within += counts[i];
    return static_cast<double>(within) / static_cast<double>(bytes);
  }
  std::size_t largest() const {
    std::size_t largest = 255;
    while (counts[largest] == 0) --largest;
    return largest;
  }
};

// A random part of the image, at least three quarters of it in each direction.
ImageRegion random_part(const ImageShape& shape, PhiloxStream& random) {
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(bound)));
  };
  const std::int64_t height = shape.height - below(shape.height / 4 + 1);
  const std::int64_t width = shape.width - below(shape.width / 4 + 1);
  return {below(shape.height - height + 1), below(shape.width - width + 1), height, width};
}

// The largest size to which `part` can be resized from an image reduced by `factor`.
ImageSize largest_from(const ImageRegion& part, std::int64_t factor) {
  // The required number of reduced pixels for each resized pixel, in tenths.
  const std::int64_t gap = factor == 2 ? 12 : factor == 4 ? 13 : 15;
  const auto side = [&](std::int64_t pixels) {
    return static_cast<int>(10 * (pixels / factor) / gap);
  };
  return {side(part.height), side(part.width)};
}

// Resizes `part` of the image with both readers and compares the results.
void compare(ImageReader& reduced, ImageReader& exact, const ImageRegion& part, std::int64_t factor,
             Differences& differences) {
  const ImageSize size = largest_from(part, factor);
  const ReducedView few = reduced.reduced(part, size.height, size.width);
  const ReducedView all = exact.reduced(part, size.height, size.width);
  ASSERT_EQ(few.factor, factor);
  ASSERT_EQ(all.factor, 1);
  data::Resampler resampler;
  data::Resampler of_all;
  differences.add(resampler.resize(few, size.height, size.width),
                  of_all.resize(all, size.height, size.width));
}

// The hardest photographs: sharp to the pixel, and shrunk no further than a reduction requires.
TEST(ReducedDecoding, IsCloseToAnExactOneOnPhotographs) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const auto folder = real_data("trashnet").value();
  const ImageDataset reduced = load_image_folder(folder, {.decoding = Decoding::kScaled});
  const ImageDataset exact = load_image_folder(folder);
  ImageReader reader;
  ImageReader exact_reader;
  for (const std::int64_t factor : {2, 4, 8}) {
    SCOPED_TRACE(str("at 1/", factor));
    Differences differences;
    PhiloxStream random(1, 0, static_cast<std::uint64_t>(factor));
    for (std::int64_t i = 0; i < reduced.size(); i += 10) {
      reduced.read(i, reader);
      exact.read(i, exact_reader);
      compare(reader, exact_reader, random_part(reader.shape(), random), factor, differences);
      if (HasFatalFailure()) return;
    }
    RecordProperty(str("mean_at_", factor), str(differences.mean()));
    EXPECT_GT(differences.bytes, 70'000);
    EXPECT_LT(differences.mean(), 0.9);
    EXPECT_GT(differences.share_within(12), 0.999);
    EXPECT_LT(differences.largest(), 40U);
  }
}

// Waves as long as a dozen reduced pixels: if the two pictures are shifted against each other by a
// tenth of a reduced pixel, they differ by more than this test allows.
std::vector<std::uint8_t> waves(int width, int height, int channels) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double value = 127 + 60 * std::sin(x / 15.0 + c) + 60 * std::cos(y / 15.0 - c);
        pixels.push_back(static_cast<std::uint8_t>(std::lround(value)));
      }
    }
  }
  return pixels;
}

TEST(ReducedDecoding, KeepsEveryPartInItsPlace) {
  for (const JpegSpec& kind : jpeg_kinds(403, 310)) {
    // Four channels are inks, whose product is not a wave, and without details there is nothing to
    // compare. With other subsampling of chroma, libjpeg repeats chroma at a reduced size but
    // interpolates it at full size.
    const bool inks = kind.colors == JpegColors::kCmyk || kind.colors == JpegColors::kYcck;
    const bool usual = kind.horizontal == kind.vertical && kind.horizontal <= 2;
    if (kind.dc_only || inks || !usual) continue;
    SCOPED_TRACE(kind.name);
    JpegSpec spec = kind;
    spec.quality = 97;
    const int channels = spec.colors == JpegColors::kGrey ? 1 : 3;
    const std::string file = encode_jpeg(spec, waves(spec.width, spec.height, channels));
    ImageReader reader;
    ImageReader exact_reader;
    reader.open(as_bytes(file), "reduced", Decoding::kScaled);
    exact_reader.open(as_bytes(file), "exact");
    PhiloxStream random(2, 0, 0);
    for (const std::int64_t factor : {2, 4, 8}) {
      SCOPED_TRACE(str("at 1/", factor));
      Differences differences;
      for (int i = 0; i < 6; ++i) {
        compare(reader, exact_reader, random_part(reader.shape(), random), factor, differences);
        if (HasFatalFailure()) return;
      }
      EXPECT_LE(differences.largest(), 6U);
      EXPECT_LT(differences.mean(), 0.6);
    }
  }
}

// The weights of every resized pixel sum to 1, also at the borders, where neighbours are missing.
TEST(ReducedDecoding, LeavesAnEvenColourAsItIs) {
  const std::vector<std::uint8_t> pixels(std::size_t{40} * 40, 201);
  data::Resampler resampler;
  for (const std::int64_t factor : {2, 4, 8}) {
    for (std::int64_t offset = 0; offset < factor; ++offset) {
      for (const std::int64_t count : {std::int64_t{1}, factor, 40 * factor - 2 * offset}) {
        const std::int64_t covered = (offset + count + factor - 1) / factor;
        const ImageView view = ImageView::planar(pixels.data(), {1, covered, covered});
        for (const std::int64_t size : {std::int64_t{1}, covered / 2 + 1, covered + 3}) {
          const ImageView made =
              resampler.resize({view, factor, {offset, offset, count, count}}, size, size);
          ASSERT_EQ(made.shape, (ImageShape{1, size, size}));
          const auto [least, most] = std::minmax_element(made.pixels, made.pixels + size * size);
          EXPECT_EQ(*least, 201) << factor << ", " << offset << ", " << count << " to " << size;
          EXPECT_EQ(*most, 201);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
