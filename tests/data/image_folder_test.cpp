#include <lockstep/data/datasets/image_folder.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/datasets/cached_images.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/loader/dali_batch.h>
#include <lockstep/data/preparation/check_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/formats/exif.h>
#include <lockstep/formats/png.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

// A PNG whose first pixel identifies it.
std::string png(int width, int height, std::uint8_t mark) {
  std::string pixels = pattern(static_cast<std::size_t>(width * height * 3));
  pixels[0] = static_cast<char>(mark);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(pixels.data());
  return detail::encode_png({bytes, pixels.size()}, width, height);
}

class ImageFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) { folder.write(name, content); }
  std::string error() {
    return message_of<DataError>([&] { load_image_folder(folder.path()); });
  }
  TemporaryDirectory folder;
};

// Files of formats that are not read are listed, too: their reader says so.
TEST_F(ImageFolder, ListsTheFilesOfAllFoldersBelow) {
  for (const char* name : {"b.png", "a.JPG", "c.gif", "deep/er/1.jpeg", "deep/2.png", "notes.txt"})
    write(name, "never opened");
  std::vector<std::string> expected;
  for (const char* name : {"a.JPG", "b.png", "c.gif", "deep/2.png", "deep/er/1.jpeg"}) {
    expected.push_back((folder / name).string());
  }
  for (const std::string& directory : {folder.path().string(), folder.path().string() + "/"}) {
    std::vector<std::string> found;
    for (const auto& path : list_image_files(directory)) found.push_back(path.string());
    EXPECT_EQ(found, expected) << directory;
  }
  write("empty/notes.txt", "no image");
  const std::string empty = (folder / "empty").string();
  EXPECT_EQ(message_of<DataError>([&] { list_image_files(empty); }),
            empty + ": holds no .jpg, .jpeg, .jpe, .jfif or .png file");
  EXPECT_THAT(message_of<DataError>([&] { list_image_files(folder / "nosuch"); }),
              HasSubstr("nosuch"));
}

TEST_F(ImageFolder, TakesClassesAndFilesInTheOrderOfTheirNames) {
  write("dog/b.png", png(4, 3, 2));
  write("dog/a.PNG", png(5, 3, 1));
  write("dog/deeper/a.png", png(6, 3, 3));
  write("dog/notes.txt", "no image");
  write("cat/z.png", png(7, 3, 0));
  write("readme.png", "not in a class, so never opened");
  const ImageDataset dataset = load_image_folder(folder.path());
  ASSERT_EQ(dataset.size(), 4);
  EXPECT_EQ(dataset.num_classes(), 2);
  EXPECT_THAT(dataset.class_names(), ::testing::ElementsAre("cat", "dog"));
  EXPECT_EQ(subset(dataset, {3}).class_names(), dataset.class_names());
  EXPECT_EQ(concatenate({dataset, dataset}).class_names(), dataset.class_names());
  EXPECT_EQ(dataset.shape(), (ImageShape{3, 0, 0}));
  EXPECT_EQ(dataset.name(), "images of " + folder.path().filename().string());
  EXPECT_EQ(load_image_folder(folder.path() / "").name(), dataset.name()) << "with a slash";
  EXPECT_EQ(message_of<ConfigError>([&] { dataset.image(0); }),
            "data set " + dataset.name() + ": its images are files, which an ImageReader decodes");
  ImageReader reader;
  const int widths[] = {7, 5, 4, 6};
  for (std::int64_t i = 0; i < 4; ++i) {
    dataset.read(i, reader);
    EXPECT_FALSE(reader.is_decoded());
    EXPECT_EQ(reader.shape(), (ImageShape{3, 3, widths[i]}));
    EXPECT_EQ(reader.pixels({0, 0, 1, 1}).pixels[0], i);
    EXPECT_EQ(dataset.label(i), i == 0 ? 0 : 1);
  }
  EXPECT_THAT(message_of<ConfigError>([&] { dataset.image(0); }),
              HasSubstr("its images are files"));
}

// Browsers save JPEGs under these names.
TEST_F(ImageFolder, TakesEveryNameOfAJpeg) {
  const char* const names[] = {"a.jfif", "b.JFIF", "c.jpe", "d.Jpe", "e.jpeg", "f.jpg"};
  for (const char* name : names) write(std::string("cat/") + name, "");
  write("cat/g.jpem", "no image");
  write("cat/h.jfi", "no image");
  EXPECT_EQ(load_image_folder(folder.path()).size(), 6);
}

// A TIFF structure with other entries before Orientation.
std::string tiff(int orientation, bool little_endian, bool as_long = false) {
  const auto number = [&](std::uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) {
      const int shift = 8 * (little_endian ? i : bytes - 1 - i);
      text += static_cast<char>(value >> shift & 0xff);
    }
    return text;
  };
  const auto entry = [&](std::uint32_t tag, std::uint32_t type, const std::string& value) {
    return number(tag, 2) + number(type, 2) + number(1, 4) + value;
  };
  const auto value = static_cast<std::uint32_t>(orientation);
  return std::string(little_endian ? "II*\0" : "MM\0*", 4) + number(8, 4) + number(2, 2) +
         entry(0x0100, 4, number(77, 4)) +
         (as_long ? entry(0x0112, 4, number(value, 4))
                  : entry(0x0112, 3, number(value, 2) + number(0, 2))) +
         number(0, 4);
}

// A PNG with a chunk eXIf before its pixels.
std::string with_exif(const std::string& file, const std::string& content) {
  constexpr std::size_t kAfterHeader = 33;
  const std::string typed = "eXIf" + content;
  const std::string chunk = big_endian({static_cast<std::uint32_t>(content.size())}) + typed +
                            big_endian({libdeflate_crc32(0, typed.data(), typed.size())});
  return file.substr(0, kAfterHeader) + chunk + file.substr(kAfterHeader);
}

// A JPEG with a segment APP1 behind its first marker.
std::string with_app1(const std::string& file, const std::string& content) {
  return file.substr(0, 2) + "\xff\xe1" +
         big_endian({static_cast<std::uint32_t>(content.size() + 2)}).substr(2) + content +
         file.substr(2);
}

// The red values of an image in the order of its rows, as letters, and its size.
std::string letters_of(ImageReader& reader) {
  const ImageShape shape = reader.shape();
  const ImageView view = reader.pixels({0, 0, shape.height, shape.width});
  std::string text = str(shape.width, "x", shape.height, " ");
  for (std::int64_t y = 0; y < shape.height; ++y) {
    for (std::int64_t x = 0; x < shape.width; ++x) {
      text += static_cast<char>(view.pixels[y * view.row_stride + x * view.pixel_stride]);
    }
  }
  return text;
}

std::string letters_of(const ImageDataset& dataset, std::int64_t index = 0) {
  ImageReader reader;
  dataset.read(index, reader);
  return letters_of(reader);
}

// The image abc/def with an orientation.
std::string oriented_letters(int orientation) {
  std::vector<std::uint8_t> pixels;
  for (const char red : std::string("abcdef")) {
    pixels.insert(pixels.end(), {static_cast<std::uint8_t>(red), 1, 2});
  }
  return with_exif(detail::encode_png(pixels, 3, 2), tiff(orientation, true));
}

// The results are those of Pillow 13: ImageOps.exif_transpose() of the image abc/def.
TEST_F(ImageFolder, TurnsPhotographsUprightOnRequest) {
  std::vector<std::uint8_t> pixels;
  for (const char red : std::string("abcdef")) {
    pixels.insert(pixels.end(), {static_cast<std::uint8_t>(red), 1, 2});
  }
  const std::string plain = detail::encode_png(pixels, 3, 2);
  const char* const expected[] = {"3x2 abcdef", "3x2 abcdef", "3x2 cbafed", "3x2 fedcba",
                                  "3x2 defabc", "2x3 adbecf", "2x3 daebfc", "2x3 fcebda",
                                  "2x3 cfbead", "3x2 abcdef"};
  for (int orientation = 0; orientation <= 9; ++orientation) {
    for (const bool little_endian : {true, false}) {
      for (const bool as_long : {true, false}) {
        write("cat/1.png", with_exif(plain, tiff(orientation, little_endian, as_long)));
        EXPECT_EQ(letters_of(load_image_folder(folder.path(), {.exif_transpose = true})),
                  expected[orientation])
            << orientation;
        EXPECT_EQ(letters_of(load_image_folder(folder.path())), "3x2 abcdef") << "the default";
      }
    }
  }
  write("cat/1.png", plain);
  const ImageDataset upright = load_image_folder(folder.path(), {.exif_transpose = true});
  EXPECT_EQ(letters_of(upright), "3x2 abcdef");
  EXPECT_FALSE(upright.is_file(0)) << "an engine's own decoder would not turn it as we do";
}

// A part of a turned JPEG is that part of the whole, turned by hand.
TEST_F(ImageFolder, TurnsAJpegUpright) {
  const std::string plain = encode_jpeg({.width = 40, .height = 24});
  const std::string exif = std::string("Exif\0\0", 6);
  const std::string xmp = std::string("http://ns.adobe.com/xap/1.0/\0", 29);
  const std::vector<std::uint8_t> whole = plain_libjpeg(plain);
  const std::string turned[] = {
      with_app1(plain, exif + tiff(6, true)),
      with_app1(with_app1(plain, exif + tiff(6, false)), xmp + "tiff:Orientation=\"3\""),
      with_app1(plain, xmp + "<x:xmpmeta tiff:Orientation=\"6\"/>"),
      with_app1(plain, xmp + "<tiff:Orientation>6</tiff:Orientation>"),
  };
  for (const std::string& file : turned) {
    write("cat/1.jpg", file);
    for (const auto decoding : {ImageReader::Decoding::kExact, ImageReader::Decoding::kScaled}) {
      const ImageDataset dataset =
          load_image_folder(folder.path(), {.decoding = decoding, .exif_transpose = true});
      ImageReader reader;
      dataset.read(0, reader);
      ASSERT_EQ(reader.shape(), (ImageShape{3, 40, 24}));
      const ImageView part = reader.pixels({5, 3, 30, 11});
      for (std::int64_t y = 0; y < 30; ++y) {
        for (std::int64_t x = 0; x < 11; ++x) {
          // Column x of the result is row 23 - x of the file.
          const std::int64_t from = 3 * ((23 - (x + 3)) * 40 + (y + 5));
          for (std::int64_t c = 0; c < 3; ++c) {
            ASSERT_EQ(
                part.pixels[y * part.row_stride + x * part.pixel_stride + c * part.channel_stride],
                whole[static_cast<std::size_t>(from + c)]);
          }
        }
      }
    }
  }
}

// Damaged or foreign EXIF turns nothing, wherever it is cut.
TEST_F(ImageFolder, ReadsNoOrientationFromDamagedExif) {
  const std::string exif = std::string("Exif\0\0", 6) + tiff(6, true);
  for (std::size_t size = 0; size <= exif.size(); ++size) {
    const std::string file = with_app1("\xff\xd8\xff\xd9", exif.substr(0, size));
    const int orientation = detail::exif_orientation(std::as_bytes(std::span(file)));
    EXPECT_EQ(orientation, size >= 6 + 10 + 12 + 10 ? 6 : 1) << size;
    for (std::size_t cut = 0; cut < file.size(); ++cut) {
      const std::string part = file.substr(0, cut);
      const int value = detail::exif_orientation(std::as_bytes(std::span(part)));
      EXPECT_TRUE(value == 1 || value == 6);
    }
  }
  for (const std::string& wrong :
       {std::string("XX*\0\0\0\0\10", 8), std::string("II*\0\377\377\377\377", 8), tiff(9, true),
        tiff(0, true), tiff(300, false)}) {
    const std::string file = with_app1("\xff\xd8\xff\xd9", std::string("Exif\0\0", 6) + wrong);
    EXPECT_EQ(detail::exif_orientation(std::as_bytes(std::span(file))), 1);
  }
  EXPECT_EQ(detail::exif_orientation({}), 1);
  // Pillow looks into XMP only if EXIF has no Orientation, whatever its number.
  const std::string xmp =
      std::string("http://ns.adobe.com/xap/1.0/\0", 29) + "tiff:Orientation=\"6\"";
  for (const int orientation : {0, 3, 9}) {
    const std::string file = with_app1(with_app1("\xff\xd8\xff\xd9", xmp),
                                       std::string("Exif\0\0", 6) + tiff(orientation, true));
    EXPECT_EQ(detail::exif_orientation(std::as_bytes(std::span(file))), orientation == 3 ? 3 : 1);
  }
}

TEST_F(ImageFolder, TurnsAPhotographOnce) {
  write("cat/1.png", oriented_letters(6));
  write("cat/2.png", oriented_letters(1));
  const ImageDataset upright = load_image_folder(folder.path(), {.exif_transpose = true});
  ImageReader reader;
  upright.read(0, reader);
  EXPECT_TRUE(reader.is_decoded());
  EXPECT_TRUE(reader.file().empty());
  EXPECT_THAT(std::string(reader.name()), HasSubstr("cat/1.png"));
  reader.transpose_by_exif();
  EXPECT_EQ(letters_of(reader), "2x3 daebfc");
  upright.read(1, reader);
  EXPECT_FALSE(reader.is_decoded()) << "there is nothing to turn";
  EXPECT_EQ(reader.file().size(), oriented_letters(1).size());
}

// The orientation of a file says nothing of the pixels that the same reader shows next.
TEST_F(ImageFolder, TurnsNoPixelsThatAreShownBehindAFile) {
  write("cat/1.png", oriented_letters(6));
  ImageReader reader;
  load_image_folder(folder.path()).read(0, reader);
  const std::vector<std::uint8_t> pixels = {'x', 0, 0, 'y', 0, 0};
  reader.show(ImageView::interleaved(pixels.data(), {3, 1, 2}));
  EXPECT_TRUE(reader.file().empty());
  reader.transpose_by_exif();
  EXPECT_EQ(letters_of(reader), "2x1 xy");
}

TEST_F(ImageFolder, PacksPhotographsUpright) {
  write("cat/1.png", oriented_letters(1));
  write("cat/2.png", oriented_letters(8));
  const ImageDataset upright = load_image_folder(folder.path(), {.exif_transpose = true});
  const TemporaryDirectory out;
  pack_images(upright, out / "pixels", {});
  const ImageDataset packed = load_packed_images(out / "pixels");
  EXPECT_EQ(letters_of(packed, 0), "3x2 abcdef");
  EXPECT_EQ(letters_of(packed, 1), "2x3 cfbead");
  const auto keep_files = [&](const ImageDataset& dataset) {
    pack_images(dataset, out / "files", {.keep_files = true});
  };
  EXPECT_THAT(message_of<ConfigError>([&] { keep_files(upright); }),
              HasSubstr("holds pixels, not files that could be kept as they are"));
  EXPECT_THAT(out.names(), ::testing::ElementsAre("pixels"));
  keep_files(subset(upright, {0}));
  EXPECT_EQ(letters_of(load_packed_images(out / "files")), "3x2 abcdef");
}

TEST_F(ImageFolder, PhotographsInAPackOfFilesAreTurnedWhenTheyAreRead) {
  write("cat/1.png", oriented_letters(1));
  write("cat/2.png", oriented_letters(8));
  const TemporaryDirectory out;
  pack_images(load_image_folder(folder.path()), out / "files", {.keep_files = true});
  const ImageDataset lying = load_packed_images(out / "files");
  EXPECT_EQ(letters_of(lying, 1), "3x2 abcdef");
  EXPECT_EQ(lying.shape(), (ImageShape{3, 2, 3}));
  EXPECT_TRUE(lying.is_file(1));
  const ImageDataset upright = load_packed_images(out / "files", {.exif_transpose = true});
  EXPECT_EQ(letters_of(upright, 0), "3x2 abcdef");
  EXPECT_EQ(letters_of(upright, 1), "2x3 cfbead");
  EXPECT_EQ(upright.shape(), (ImageShape{3, 0, 0})) << "one was turned";
  EXPECT_FALSE(upright.is_file(1)) << "DALI would not turn it";
  pack_images(upright, out / "pixels", {});
  EXPECT_EQ(letters_of(load_packed_images(out / "pixels"), 1), "2x3 cfbead");
  EXPECT_EQ(message_of<ConfigError>(
                [&] { load_packed_images(out / "pixels", {.exif_transpose = true}); }),
            (out / "pixels").string() +
                " holds decoded images without their EXIF orientation; remove "
                "PackedImagesOptions::exif_transpose, and pack the photographs again with "
                "`lockstep data pack --exif-transpose`");
}

TEST_F(ImageFolder, CachesPhotographsUpright) {
  write("cat/1.png", oriented_letters(6));
  write("cat/2.png", oriented_letters(1));
  const ImageDataset upright = load_image_folder(folder.path(), {.exif_transpose = true});
  const ImageDataset cached = cache_images(upright, {.max_bytes = 4096});
  const ImageDataset resized = cache_images(upright, {.max_bytes = 4096, .size = ImageSize{3, 2}});
  for (const char* pass : {"stores", "reads what is stored"}) {
    EXPECT_EQ(letters_of(cached, 0), "2x3 daebfc") << pass;
    EXPECT_EQ(letters_of(cached, 1), "3x2 abcdef") << pass;
    EXPECT_EQ(letters_of(resized, 0), "2x3 daebfc") << pass;
    std::filesystem::remove_all(folder / "cat");
  }
}

TEST_F(ImageFolder, LetsDaliDecodeOnlyWhatNeedsNoTurning) {
  write("cat/1.png", oriented_letters(1));
  EXPECT_TRUE(data::dali_input_of(load_image_folder(folder.path())).encoded);
  const data::DaliPlanOptions upright =
      data::dali_input_of(load_image_folder(folder.path(), {.exif_transpose = true}));
  EXPECT_FALSE(upright.encoded);
  EXPECT_EQ(upright.input_layout, data::Layout::kChannelsLast);
}

// A photograph that has to be turned is decoded when it is read.
TEST_F(ImageFolder, FindsDamageInPhotographsThatAreTurned) {
  const std::string whole = oriented_letters(6);
  write("cat/1.png", whole);
  write("cat/2.png", whole.substr(0, whole.find("IDAT") + 6));
  const ImagesCheck check =
      check_images(load_image_folder(folder.path(), {.exif_transpose = true}));
  EXPECT_EQ(check.images, 2);
  ASSERT_EQ(check.corrupt.size(), 1U);
  EXPECT_EQ(check.corrupt[0].index, 1);
  EXPECT_THAT(check.corrupt[0].reason, HasSubstr("cat/2.png"));
}

// torchvision sorts the paths of folders as text, in which '-' comes before '/', and then the names
// within each folder.
TEST_F(ImageFolder, HasAFingerprintOfItsNames) {
  const auto fingerprint = [](const std::filesystem::path& path) {
    return load_image_folder(path).fingerprint();
  };
  write("here/cat/1.png", png(3, 3, 1));
  write("here/dog/2.png", png(3, 3, 2));
  write("in/another/place/cat/1.png", png(5, 3, 1));
  write("in/another/place/dog/2.png", png(5, 3, 2));
  const std::uint64_t here = fingerprint(folder.path() / "here");
  EXPECT_NE(here, 0U);
  EXPECT_EQ(fingerprint(folder.path() / "here/"), here);
  EXPECT_EQ(fingerprint(folder.path() / "in/another/place"), here) << "the names are the same";
  write("here/dog/3.png", png(3, 3, 3));
  const std::uint64_t more = fingerprint(folder.path() / "here");
  EXPECT_NE(more, here);
  std::filesystem::rename(folder.path() / "here/dog/3.png", folder.path() / "here/cat/3.png");
  EXPECT_NE(fingerprint(folder.path() / "here"), more) << "another class";
}

TEST_F(ImageFolder, FollowsLinksInTorchvisionsOrder) {
  const char* const names[] = {"b/a-z/2.png", "b/a-z/3.JPeG", "b/a/0.png", "b/a/z/1.png",
                               "link/4.png"};
  const std::vector<std::string> order = {"b/a/0.png", "b/a-z/2.png", "b/a-z/3.JPeG", "b/a/z/1.png",
                                          "link/4.png"};
  for (const char* name : names) write(name, png(4, 3, static_cast<std::uint8_t>(name[0])));
  const TemporaryDirectory elsewhere;
  std::filesystem::rename(folder / "link", elsewhere / "real");
  std::filesystem::create_directory_symlink(elsewhere / "real", folder / "link");
  std::filesystem::create_symlink("nowhere.png", folder / "b/a/dangling.png");
  write("b/.png", "a name without an extension");
  const ImageDataset dataset = load_image_folder(folder.path());
  ASSERT_EQ(dataset.size(), 6);
  ImageReader reader;
  std::vector<std::string> read;
  for (std::int64_t i = 0; i < 6; ++i) {
    if (i == 1) {
      EXPECT_THAT(message_of<DataError>([&] { dataset.read(i, reader); }),
                  HasSubstr("b/a/dangling.png: No such file"));
      continue;
    }
    const std::string& name = order[static_cast<std::size_t>(i > 1 ? i - 1 : i)];
    write(name, "no image");
    EXPECT_THAT(message_of<DataError>([&] { dataset.read(i, reader); }),
                HasSubstr((folder / name).string() + ": neither JPEG nor PNG"));
  }
  EXPECT_EQ(dataset.label(4), 0);
  EXPECT_EQ(dataset.label(5), 1);
}

// Root ignores permissions, so root becomes another user temporarily.
class WithoutRights {
 public:
  WithoutRights() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65'534) != 0) throw std::runtime_error("seteuid failed");
  }
  ~WithoutRights() {
    if (was_root_ && seteuid(0) != 0) std::abort();
  }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;

 private:
  bool was_root_;
};

TEST_F(ImageFolder, NamesAFolderThatCannotBeRead) {
  namespace fs = std::filesystem;
  write("cat/a.png", png(4, 3, 2));
  write("cat/more/locked/b.png", png(4, 3, 2));
  fs::permissions(folder.path(), fs::perms::all);
  const fs::path locked = folder / "cat/more/locked";
  fs::permissions(locked, fs::perms::none);
  {
    const WithoutRights rights;
    EXPECT_EQ(error(), "cannot read " + locked.string() + ": Permission denied");
  }
  fs::permissions(locked, fs::perms::all);
  fs::create_directory_symlink("loop", folder / "cat/loop");
  EXPECT_EQ(error(), "cannot read " + (folder / "cat/loop").string() +
                         ": Too many levels of symbolic links");
}

TEST_F(ImageFolder, SaysWhatIsMissing) {
  EXPECT_THAT(
      error(),
      HasSubstr("has no subfolders; each class needs a subfolder of images, such as cat/1.jpg"));
  write("cat/a.txt", "");
  EXPECT_THAT(error(), HasSubstr("cat: holds no .jpg, .jpeg, .jpe, .jfif or .png file"));
  write("cat/a.png", "");
  write("cat/b.webp", "");
  EXPECT_THAT(error(),
              HasSubstr("b.webp: .webp files are not supported; convert it to PNG or JPEG, move it "
                        "out of the folder, or skip it with ImageFolderOptions::keep_unreadable"));
  EXPECT_THAT(message_of<DataError>([&] { load_image_folder(folder / "none"); }),
              HasSubstr("none does not exist; give a folder with a subfolder of images "
                        "for each class"));
  EXPECT_THAT(message_of<DataError>([&] { load_image_folder(folder / "cat/a.png"); }),
              HasSubstr("a.png is not a folder; give a folder with"));
}

// They are refused when they are read, so that checks list them and loaders can skip them.
TEST_F(ImageFolder, KeepsUnreadableFormatsOnRequest) {
  using std::string_literals::operator""s;
  const char* const names[] = {"b.bmp", "c.gif", "d.pgm", "e.ppm", "f.tif", "g.TIFF", "h.webp"};
  write("cat/a.png", png(4, 3, 2));
  for (const char* name : names) write("cat/"s + name, "RIFF\4\0\0\0WEBP"s);
  write("dog/a.webp", "RIFF\4\0\0\0WEBP"s);
  write("dog/notes.txt", "no image");
  const ImageDataset all = load_image_folder(folder.path(), {.keep_unreadable = true});
  ASSERT_EQ(all.size(), 9);
  const ImagesCheck check = check_images(all, {.threads = 1});
  ASSERT_EQ(check.corrupt.size(), 8U);
  EXPECT_THAT(check.corrupt[0].reason,
              HasSubstr("cat/b.bmp: is a WebP image, expected JPEG or PNG; convert it"));
  for (const char* name : names) std::filesystem::remove(folder / ("cat/"s + name));
  std::filesystem::remove_all(folder / "dog");
  EXPECT_EQ(load_image_folder(folder.path()).fingerprint(),
            load_image_folder(folder.path(), {.keep_unreadable = true}).fingerprint())
      << "the option alone changes nothing";
}

// Both would be \xe9 in the records of a run.
TEST_F(ImageFolder, RefusesNamesThatRecordsWouldConfuse) {
  write("caf\xE9/a.png", png(4, 3, 2));
  write("caf\xE8/a.png", png(4, 3, 2));
  EXPECT_EQ(load_image_folder(folder.path()).num_classes(), 2);
  write("caf\\xe9/a.png", png(4, 3, 2));
  EXPECT_THAT(error(), HasSubstr(": two folders would both be recorded as 'caf\\xe9'"));
}

TEST_F(ImageFolder, NamesADamagedFile) {
  write("cat/a.png", png(4, 3, 2).substr(0, 40));
  write("cat/b.jpg", "GIF89a");
  const ImageDataset dataset = load_image_folder(folder.path());
  ImageReader reader;
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of<DataError>([&] {
                  dataset.read(i, reader);
                  reader.pixels({0, 0, 3, 4});
                }),
                HasSubstr(i == 0 ? "a.png" : "b.jpg"));
  }
  std::filesystem::remove(folder / "cat/a.png");
  EXPECT_THAT(message_of<DataError>([&] { dataset.read(0, reader); }),
              HasSubstr("a.png: No such file"));
}

TEST_F(ImageFolder, RefusesImagesOfMorePixelsThanAnOptionAllows) {
  write("cat/a.png", png(40, 30, 2));
  ImageReader reader;
  const auto read = [&](const ImageFolderOptions& options) {
    load_image_folder(folder.path(), options).read(0, reader);
  };
  EXPECT_NO_THROW(read({.max_image_pixels = 1200}));
  EXPECT_THAT(message_of<DataError>([&] { read({.max_image_pixels = 1199}); }),
              HasSubstr("a.png: an image of 40x30 has 1200 pixels, at most 1199 are allowed"));
  EXPECT_NO_THROW(read({})) << "the reader takes the limit of each file";
  // The header declares 90 million pixels, none of which is decoded.
  std::string large = png(40, 30, 2);
  using std::string_literals::operator""s;
  const std::string header = "IHDR" + big_endian({10'000, 9'000}) + "\x08\x02\0\0\0"s;
  large.replace(
      8, 25,
      big_endian({13}) + header + big_endian({libdeflate_crc32(0, header.data(), header.size())}));
  write("cat/a.png", large + pattern(20'000));
  EXPECT_THAT(message_of<DataError>([&] { read({}); }),
              HasSubstr("raise ImageDecoderOptions::max_image_pixels"));
  EXPECT_NO_THROW(read({.max_image_pixels = 90'000'000}));
  for (const std::int64_t limit : {std::int64_t{0}, kMaxImagePixelsLimit + 1}) {
    EXPECT_THAT(message_of<ConfigError>([&] { read({.max_image_pixels = limit}); }),
                HasSubstr("load_image_folder: max_image_pixels must be from 1 to"));
  }
}

// Only the part of a file that the augmentation needs is decoded. The result equals that of the
// whole image.
TEST_F(ImageFolder, DecodesWhatTheListShows) {
  write("cat/a.png", png(60, 47, 9));
  const ImageDataset dataset = load_image_folder(folder.path());
  const Normalize normalize{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
  const Augmentation lists[] = {
      {CenterCrop{{20, 31}}, normalize},
      {RandomCrop{{47, 60}}, RandomHorizontalFlip{}, normalize, Cutout{9}},
      {Pad{9, 77}, RandomCrop{{15, 70}}, RandomVerticalFlip{}, normalize},
      {RandomResizedCrop{{24, 32}}, RandomHorizontalFlip{}, normalize},
      {Pad{50}, RandomCrop{{40, 12}}, normalize},  // often shows nothing but padding
      {RandomHorizontalFlip{}, Resize{{31, 30}}, normalize},
      {Cutout{30}, RandomHorizontalFlip{}, CenterCrop{{60, 20}}, normalize},
  };
  ImageReader reader;
  ImageReader whole;
  for (const Augmentation& list : lists) {
    const data::AugmentationPlan plan(list, dataset.shape());
    std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
    std::vector<float> expected(output.size());
    for (std::uint64_t sample = 0; sample < 50; ++sample) {
      dataset.read(0, reader);
      plan.apply(reader, {.sample = sample}, output.data());
      dataset.read(0, whole);
      plan.apply(whole.pixels({0, 0, 47, 60}), {.sample = sample}, expected.data());
      ASSERT_EQ(output, expected) << "list " << &list - lists << ", sample " << sample;
    }
  }
}

TEST(ImageFolderOfPhotographs, IsDecodedAtAReducedSizeWhereThatSuffices) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const std::filesystem::path folder = real_data("trashnet").value();
  const ImageDataset dataset =
      load_image_folder(folder, {.decoding = ImageReader::Decoding::kScaled});
  ASSERT_EQ(dataset.size(), 2527);
  EXPECT_EQ(dataset.num_classes(), 6);
  ImageReader reader;
  dataset.read(0, reader);
  ASSERT_EQ(reader.shape(), (ImageShape{3, 150, 150}));
  const ImageRegion whole = {0, 0, 150, 150};
  const ImageRegion part = {10, 21, 100, 120};
  // Images reduced to a half, a quarter and an eighth must still have at least 1.2, 1.3 and 1.5
  // times as many pixels per side as wanted.
  EXPECT_EQ(reader.reduced(whole, 63, 20).view.shape, (ImageShape{3, 150, 150}));
  EXPECT_EQ(reader.reduced(whole, 20, 63).factor, 1);
  EXPECT_EQ(reader.reduced(whole, 62, 62).view.shape, (ImageShape{3, 75, 75}));
  EXPECT_EQ(reader.reduced(whole, 29, 20).factor, 2);
  EXPECT_EQ(reader.reduced(whole, 28, 28).view.shape, (ImageShape{3, 38, 38}));
  EXPECT_EQ(reader.reduced(whole, 13, 12).factor, 4);
  EXPECT_EQ(reader.reduced(whole, 12, 12).view.shape, (ImageShape{3, 19, 19}));
  EXPECT_EQ(reader.reduced(whole, 1, 1).factor, 8);
  // The view consists of the reduced pixels that cover the part, with the part's place within them.
  const ReducedView covering = reader.reduced(part, 10, 10);
  EXPECT_EQ(covering.factor, 4);
  EXPECT_EQ(covering.view.shape, (ImageShape{3, 26, 31}));
  EXPECT_EQ(covering.part, (ImageRegion{2, 1, 100, 120}));
  EXPECT_EQ(reader.pixels(part).shape, (ImageShape{3, 100, 120}));
  load_image_folder(folder).read(0, reader);
  EXPECT_EQ(reader.reduced(part, 10, 10).factor, 1) << "the default is exact";
  EXPECT_EQ(reader.reduced(part, 10, 10).view.shape, (ImageShape{3, 100, 120}));
}

}  // namespace
}  // namespace lockstep::testing_support
