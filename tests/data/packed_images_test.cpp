#include <lockstep/data/datasets/packed_images.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/augment/resample.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/mnist.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/formats/pack_writer.h>
#include <lockstep/formats/png.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string gradient_png(int width, int height, unsigned factor) {
  const std::string pixels = pattern(static_cast<std::size_t>(width * height * 3), factor);
  return detail::encode_png({reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()},
                            width, height);
}

// Planar, like torchvision's tensors.
std::vector<std::uint8_t> planar(const ImageView& image) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t c = 0; c < image.shape.channels; ++c) {
    for (std::int64_t y = 0; y < image.shape.height; ++y) {
      for (std::int64_t x = 0; x < image.shape.width; ++x) {
        pixels.push_back(
            image.pixels[c * image.channel_stride + y * image.row_stride + x * image.pixel_stride]);
      }
    }
  }
  return pixels;
}

std::vector<std::uint8_t> planar_pixels(const ImageDataset& dataset, std::int64_t index) {
  ImageReader reader;
  dataset.read(index, reader);
  return planar(reader.pixels({0, 0, reader.shape().height, reader.shape().width}));
}

// Seven PNG files of different sizes in two classes.
class PackedImages : public ::testing::Test {
 protected:
  PackedImages() {
    for (int i = 0; i < 7; ++i) {
      folder.write(i < 4 ? str("cat/", i, ".png") : str("dog/", i, ".png"),
                   gradient_png(20 + i, 31 - 2 * i, 7 + static_cast<unsigned>(i)));
    }
  }
  std::filesystem::path pack(const PackImagesOptions& options) {
    pack_images(load_image_folder(folder.path()), out / "pack", options);
    return out / "pack";
  }
  TemporaryDirectory folder;
  TemporaryDirectory out;
};

TEST_F(PackedImages, AreThoseOfTheFolder) {
  const ImageDataset images = load_image_folder(folder.path());
  for (const bool keep_files : {false, true}) {
    const ImageDataset packed = load_packed_images(pack({.keep_files = keep_files}));
    ASSERT_EQ(packed.size(), 7);
    EXPECT_EQ(packed.name(), images.name());
    EXPECT_EQ(packed.shape(), (ImageShape{3, 0, 0}));
    EXPECT_THAT(packed.class_names(), ElementsAre("cat", "dog"));
    ImageReader reader;
    for (std::int64_t i = 6; i >= 0; --i) {
      packed.read(i, reader);
      EXPECT_EQ(reader.is_decoded(), !keep_files);
      EXPECT_EQ(packed.label(i), i < 4 ? 0 : 1);
      EXPECT_EQ(planar_pixels(packed, i), planar_pixels(images, i)) << "image " << i;
    }
  }
}

TEST_F(PackedImages, AreShownWhereTheyLieForAsLongAsTheDataSetLives) {
  ImageView view;
  std::vector<std::uint8_t> before;
  const auto path = pack({});
  const auto part = [&] {
    const ImageDataset packed = load_packed_images(path);
    EXPECT_EQ(packed.image(3).pixels, packed.image(3).pixels) << "a copy";
    return subset(packed, {3});
  }();
  view = part.image(0);
  before = planar(view);
  std::filesystem::remove(path);
  EXPECT_EQ(planar(view), before);
}

struct MappedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string permissions;  // "r--s": read-only and shared
  std::int64_t anonymous_kilobytes = -1;
};

// The maps of a file in this process.
std::vector<MappedRange> maps_of(const std::filesystem::path& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::vector<MappedRange> found;
  bool is_of_file = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string first, permissions;
    words >> first >> permissions;
    if (const std::size_t dash = first.find('-'); dash != std::string::npos) {
      is_of_file = line.ends_with(path.string());
      if (!is_of_file) continue;
      found.push_back({.begin = std::stoull(first.substr(0, dash), nullptr, 16),
                       .end = std::stoull(first.substr(dash + 1), nullptr, 16),
                       .permissions = permissions});
    } else if (is_of_file && first == "Anonymous:") {
      found.back().anonymous_kilobytes = std::stoll(permissions);
    }
  }
  return found;
}

// Pages of a shared map belong to the page cache, so all ranks of a host use the same ones. Pixels
// that are shown in it take no memory of the process.
TEST_F(PackedImages, ProcessesShareThePagesOfThePixels) {
  const auto path = pack({});
  for (const bool rgb : {false, true}) {
    const ImageDataset packed = load_packed_images(path, {.rgb = rgb});
    std::vector<std::uintptr_t> shown;
    for (std::int64_t i = 0; i < packed.size(); ++i) {
      EXPECT_FALSE(planar_pixels(packed, i).empty());
      shown.push_back(reinterpret_cast<std::uintptr_t>(packed.image(i).pixels));
    }
    const std::vector<MappedRange> maps = maps_of(std::filesystem::canonical(path));
    ASSERT_EQ(maps.size(), 1U);
    EXPECT_EQ(maps[0].permissions, "r--s");
    EXPECT_EQ(maps[0].anonymous_kilobytes, 0) << "private copies of pages";
    for (const std::uintptr_t pixels : shown) {
      EXPECT_GE(pixels, maps[0].begin);
      EXPECT_LT(pixels, maps[0].end);
    }
  }
}

// As a folder shows grey files.
TEST_F(PackedImages, GreyImagesAreShownAsRgbOnRequest) {
  folder.write("train-images-idx3-ubyte", idx_images(3, 6, 4));
  folder.write("train-labels-idx1-ubyte", idx_labels(3));
  const ImageDataset digits = load_mnist(folder.path(), Split::kTrain);
  pack_images(digits, out / "pack");
  const ImageDataset packed = load_packed_images(out / "pack", {.rgb = true});
  EXPECT_EQ(packed.shape(), (ImageShape{3, 6, 4}));
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::vector<std::uint8_t> grey = planar_pixels(digits, i);
    std::vector<std::uint8_t> expected;
    for (int channel = 0; channel < 3; ++channel) {
      expected.insert(expected.end(), grey.begin(), grey.end());
    }
    EXPECT_EQ(planar_pixels(packed, i), expected);
  }
  const data::AugmentationPlan plan({Resize{9}, Normalize{{0, 0, 0}, {1, 1, 1}}}, packed.shape());
  const data::AugmentationPlan grey_plan({Resize{9}, Normalize{{0}, {1}}}, digits.shape());
  std::vector<float> got(3 * 81), of_grey(81);
  ImageReader reader;
  packed.read(1, reader);
  plan.apply(reader, {}, got.data());
  digits.read(1, reader);
  grey_plan.apply(reader, {}, of_grey.data());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], of_grey[i % 81]) << i;
  EXPECT_EQ(load_packed_images(pack({}), {.rgb = true}).shape().channels, 3) << "already";
}

TEST_F(PackedImages, AreIdentifiedByTheirContent) {
  const std::uint64_t before = load_packed_images(pack({})).fingerprint();
  EXPECT_NE(before, 0U);
  EXPECT_EQ(load_packed_images(pack({.threads = 2})).fingerprint(), before) << "the same again";
  EXPECT_NE(load_packed_images(pack({.keep_files = true})).fingerprint(), before);
  std::filesystem::rename(folder / "cat/3.png", folder / "dog/3.png");
  const std::uint64_t moved = load_packed_images(pack({})).fingerprint();
  EXPECT_NE(moved, before) << "one image has another class";
  std::filesystem::rename(folder / "dog", folder / "fox");
  EXPECT_NE(load_packed_images(pack({})).fingerprint(), moved) << "a class has another name";
}

TEST_F(PackedImages, ArePartOfWhatAPathMayLeadTo) {
  const auto path = pack({.keep_files = true});
  EXPECT_EQ(data::open_images(path).size(), 7);
  EXPECT_EQ(data::open_images(folder.path()).size(), 7);
  EXPECT_FALSE(data::open_images(path, {.exif_transpose = true}).is_file(0));
  ImageReader reader;
  EXPECT_THAT(message_of<DataError>(
                  [&] { data::open_images(path, {.max_image_pixels = 99}).read(0, reader); }),
              HasSubstr("at most 99 are allowed"));
  const std::string refusal =
      (out / "none").string() +
      " does not exist; give a folder with a subfolder of images for each class, a file made by "
      "`lockstep data pack`, or the folder of a known data set's files";
  EXPECT_EQ(message_of<ConfigError>([&] { data::open_images(out / "none"); }), refusal);
  EXPECT_EQ(message_of<ConfigError>([&] { data::require_data(out / "none", "train: --data "); }),
            "train: --data " + refusal);
  EXPECT_NO_THROW(data::require_data(path));
  EXPECT_NO_THROW(data::require_data(std::string(300, 'x'))) << "reading it says what is wrong";
  EXPECT_THAT(message_of<DataError>([&] { data::open_images(folder / "cat/0.png"); }),
              HasSubstr("0.png is not a packed image file"));
  using formats::PackKind;
  EXPECT_EQ(data::pack_kind(path), PackKind::kFiles);
  EXPECT_EQ(data::pack_kind(pack({})), PackKind::kPixels);
  for (const auto& other : {folder.path(), folder / "cat/0.png", out / "none"}) {
    EXPECT_EQ(data::pack_kind(other), std::nullopt) << other;
  }
  out.write("pack", "LOCKPA");
  EXPECT_EQ(data::pack_kind(path), std::nullopt);
  out.write("pack", "LOCKPACK");
  EXPECT_THROW(data::pack_kind(path), DataError) << "a damaged pack";
}

// Our decoder equals torchvision's bit for bit (tests/oracle), so it is the reference here.
TEST_F(PackedImages, AreResizedAsTheListWouldDoIt) {
  const ImageDataset images = load_image_folder(folder.path());
  for (const Resize& resize : {Resize{{13, 17}}, Resize{12, true}, Resize{40, true}}) {
    const ImageDataset packed = load_packed_images(pack({.resize = resize}));
    EXPECT_EQ(packed.shape(),
              resize.shorter_side ? (ImageShape{3, 0, 0}) : (ImageShape{3, 13, 17}));
    for (std::int64_t i = 0; i < 7; ++i) {
      ImageReader reader;
      images.read(i, reader);
      const auto [channels, height, width] = reader.shape();
      const ImageSize size = data::resized(resize, height, width);
      data::Resampler resampler;
      EXPECT_EQ(
          planar_pixels(packed, i),
          planar(resampler.resize(reader.pixels({0, 0, height, width}), size.height, size.width)));
      packed.read(i, reader);
      if (resize.shorter_side) {
        EXPECT_EQ(std::min(reader.shape().height, reader.shape().width), resize.size.height);
      }
    }
  }
}

TEST_F(PackedImages, TheFileDoesNotDependOnTheThreads) {
  const std::string alone = read_text(pack({.resize = Resize{16}}));
  for (const int threads : {1, 2, 5}) {
    std::vector<std::int64_t> done;
    const std::string file = read_text(
        pack({.resize = Resize{16}, .threads = threads, .progress = [&](std::int64_t images) {
                done.push_back(images);
              }}));
    EXPECT_TRUE(file == alone) << threads << " threads";
    EXPECT_THAT(done, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  }
}

TEST_F(PackedImages, OfImagesInMemoryKeepTheirShapeAndClasses) {
  folder.write("train-images-idx3-ubyte", idx_images(5, 6, 4));
  folder.write("train-labels-idx1-ubyte", idx_labels(5));
  const ImageDataset digits = load_mnist(folder.path(), Split::kTrain);
  const PackedSize size = pack_images(digits, out / "pack");
  EXPECT_EQ(size.images, 5);
  EXPECT_EQ(size.bytes, std::filesystem::file_size(out / "pack"));
  const ImageDataset packed = load_packed_images(out / "pack");
  EXPECT_EQ(packed.shape(), (ImageShape{1, 6, 4}));
  EXPECT_EQ(packed.num_classes(), 10);
  EXPECT_EQ(packed.class_names(), digits.class_names());
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(planar_pixels(packed, i), planar_pixels(digits, i));
    EXPECT_EQ(packed.label(i), i);
  }
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { pack_images(digits, out / "other", {.keep_files = true, .threads = 2}); }),
              HasSubstr("MNIST train holds pixels, not files"));
  EXPECT_THAT(out.names(), ElementsAre("pack"));
}

TEST_F(PackedImages, DamageIsFoundWhenTheImageIsRead) {
  const auto path = pack({});
  std::string bytes = read_text(path);
  bytes.back() ^= 1;
  out.write("pack", bytes);
  ImageReader reader;
  for (const auto verification : {PackVerification::kFirstRead, PackVerification::kEveryRead}) {
    const ImageDataset packed = load_packed_images(path, {.verification = verification});
    EXPECT_NO_THROW(packed.read(5, reader));
    for (int i = 0; i < 2; ++i) {  // a failed check does not count as a check
      EXPECT_THAT(message_of<DataError>([&] { packed.read(6, reader); }),
                  AllOf(HasSubstr("pack: record 6 is damaged"), HasSubstr("lockstep data pack")));
    }
  }
  EXPECT_NO_THROW(
      load_packed_images(path, {.verification = PackVerification::kNever}).read(6, reader));
  out.write("pack", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(message_of<DataError>([&] { load_packed_images(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("it was cut short")));
}

// Damage after the first read is detected only when every read is verified.
TEST_F(PackedImages, EveryReadIsVerifiedOnlyWhereAskedFor) {
  const auto path = pack({});
  ImageReader reader;
  const ImageDataset once = load_packed_images(path);
  const ImageDataset always =
      load_packed_images(path, {.verification = PackVerification::kEveryRead});
  once.read(6, reader);
  always.read(6, reader);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << 'x';
  EXPECT_NO_THROW(once.read(6, reader));
  EXPECT_THROW(always.read(6, reader), DataError);
}

// A thread reads many small records between two checks of the file's length, but no large one.
// Reading a record beyond the new end would end the process with SIGBUS.
TEST_F(PackedImages, AFileThatIsCutShortInUseIsAnError) {
  for (const bool large : {false, true}) {
    if (large) folder.write("dog/9.png", gradient_png(300, 300, 7));
    for (const bool keep_files : {false, true}) {
      const auto path = pack({.keep_files = keep_files});
      const ImageDataset packed = load_packed_images(path);
      const std::int64_t last = packed.size() - 1;
      ImageReader reader;
      packed.read(last, reader);
      std::filesystem::resize_file(path, 100);
      std::string message;
      const auto read = [&] {
        message = message_of<DataError>([&] { packed.read(last, reader); });
      };
      if (large && !keep_files) {
        read();
      } else {
        std::jthread(read).join();
      }
      EXPECT_THAT(message, AllOf(HasSubstr(path.string() + ": was cut short while it is in use"),
                                 HasSubstr("lockstep data pack")))
          << large << keep_files;
    }
  }
}

// A thread that switches to another pack checks that one, however little it has read.
TEST_F(PackedImages, AThreadThatSwitchesPacksChecksTheirLengths) {
  const auto first = pack({});
  const auto second = out / "second";
  pack_images(load_image_folder(folder.path()), second, {});
  const ImageDataset packed = load_packed_images(first);
  const ImageDataset other = load_packed_images(second);
  ImageReader reader;
  other.read(0, reader);
  packed.read(0, reader);
  std::filesystem::resize_file(second, 100);
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(message_of<DataError>([&] { other.read(1, reader); }),
                HasSubstr(second.string() + ": was cut short while it is in use"));
  }
  EXPECT_NO_THROW(packed.read(1, reader));
}

// A reader that trusted the index's shape would read beyond the end of the pixels.
TEST_F(PackedImages, AFileThatIsNotWhatItsIndexSaysIsAnError) {
  const std::string file = gradient_png(9, 7, 3);
  formats::PackWriter writer(
      out / "pack",
      {.kind = formats::PackKind::kFiles, .name = "x", .channels = 3, .num_classes = 1}, 1);
  writer.add({as_bytes(file), 0, 70, 90});
  writer.finish();
  const ImageDataset packed = load_packed_images(out / "pack");
  ImageReader reader;
  EXPECT_THAT(message_of<DataError>([&] { packed.read(0, reader); }),
              HasSubstr("pack: record 0: got an image of 7x9, expected 70x90 by the index"));
}

TEST_F(PackedImages, AnImageThatCannotBeReadIsNamedAndEndsThePacking) {
  folder.write("dog/9.png", "GIF89a, no PNG at all");
  EXPECT_THAT(message_of<DataError>([&] { pack({.keep_files = true}); }), HasSubstr("dog/9.png"));
  EXPECT_THAT(message_of<DataError>([&] { pack({.threads = 2}); }), HasSubstr("dog/9.png"));
  EXPECT_THAT(out.names(), IsEmpty());
}

TEST_F(PackedImages, WhatProgressThrowsEndsThePacking) {
  for (const int threads : {0, 2}) {
    EXPECT_THROW(pack({.threads = threads,
                       .progress =
                           [](std::int64_t done) {
                             if (done == 3) throw std::logic_error("stop");
                           }}),
                 std::logic_error);
    EXPECT_THAT(out.names(), IsEmpty());
  }
}

TEST_F(PackedImages, OptionsThatCannotBe) {
  const auto error = [&](const PackImagesOptions& options) {
    return message_of<ConfigError>([&] { pack(options); });
  };
  EXPECT_THAT(error({.keep_files = true, .resize = Resize{8}}), HasSubstr("cannot be resized"));
  EXPECT_THAT(error({.resize = Resize{{0, 5}}}), HasSubstr("resize.size.height"));
  EXPECT_THAT(error({.resize = Resize{{5, 0}}}), HasSubstr("resize.size.width"));
  EXPECT_THAT(error({.threads = -1}), HasSubstr("threads"));
  folder.write("cat/wide.png", gradient_png(7000, 1, 3));
  EXPECT_THAT(message_of<DataError>([&] { pack({.resize = Resize{20, true}}); }),
              AllOf(HasSubstr("cat/wide.png (image "),
                    HasSubstr(") is 20x140000 in 8400000 bytes, more than a pack takes")));
  folder.write("cat/wide.png", gradient_png(65'536, 1, 3));
  EXPECT_THAT(message_of<DataError>([&] { pack({.keep_files = true}); }),
              HasSubstr("cat/wide.png: "));
  EXPECT_THAT(out.names(), IsEmpty());
}

// As in loaders: many threads read the same images, and any of them is the first to read a record.
TEST_F(PackedImages, AnyThreadMayRead) {
  const ImageDataset packed = load_packed_images(pack({}));
  const ImageDataset images = load_image_folder(folder.path());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < packed.size(); ++i) {
        EXPECT_EQ(planar_pixels(packed, i), planar_pixels(images, i));
      }
    });
  }
}

TEST(PackedPhotographs, GiveTheSameNumbersAsTheirFiles) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const TemporaryDirectory out;
  std::vector<std::int64_t> some;
  const ImageDataset all = load_image_folder(*real_data("trashnet"));
  for (std::int64_t i = 0; i < all.size(); i += 100) some.push_back(i);
  const ImageDataset images = subset(all, some);
  const Normalize normalize{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
  const data::AugmentationPlan plan({RandomResizedCrop{96}, RandomHorizontalFlip{}, normalize},
                                    {3, 0, 0});
  std::vector<float> expected(static_cast<std::size_t>(plan.output_shape().elements()));
  std::vector<float> got(expected.size());
  pack_images(images, out / "files", {.keep_files = true});
  const ImageDataset packed = load_packed_images(out / "files");
  EXPECT_EQ(packed.shape(), (ImageShape{3, 150, 150})) << "all have this size";
  ImageReader reader;
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const SampleKey key{.sample = static_cast<std::uint64_t>(i)};
    images.read(i, reader);
    plan.apply(reader, key, expected.data());
    packed.read(i, reader);
    plan.apply(reader, key, got.data());
    ASSERT_EQ(got, expected) << "image " << i;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
