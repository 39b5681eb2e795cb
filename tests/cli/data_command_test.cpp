// `lockstep data` as its users see it. data_preview_command_test.cpp tests its previews.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/pack.h>
#include <lockstep/formats/pack_writer.h>
#include <tests/cli/data/data_command.h>
#include <tests/cli/program_run.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(DataCommand, PacksAFolderAndShowsWhatItHolds) {
  const ProgramResult packed = run({"pack", images(), in_out("a.pack"), "--size", "6x7",
                                    "--threads", "3", "--json", in_out("pack.json")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("a.pack: images of images, 12 images as pixels in 2 classes"));
  EXPECT_THAT(packed.err, IsEmpty()) << "no bar where there is no terminal";
  const json summary = read_json("pack.json");
  EXPECT_EQ(summary["images"], 12);
  EXPECT_EQ(summary["file"], in_out("a.pack"));
  EXPECT_EQ(summary["name"], "images of images");
  EXPECT_EQ(summary["kind"], "pixels");
  EXPECT_EQ(summary["skipped_images"], 0);
  EXPECT_EQ(summary["num_classes"], 2);
  EXPECT_NEAR(summary["images_per_second"].get<double>() * summary["seconds"].get<double>(), 12,
              1e-6);
  EXPECT_EQ(summary["bytes"], std::filesystem::file_size(out / "a.pack"));
  EXPECT_EQ(summary["threads"], 3);

  const ProgramResult shown =
      run({"info", in_out("a.pack"), "--verify", "--json", in_out("i.json")});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("12, pixels of 3 channels, 6 pixels high, 7 wide"),
                               HasSubstr("2: cat, dog"), HasSubstr("checksums  OK")));
  const json info = read_json("i.json");
  EXPECT_EQ(info["class_names"], (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(info["height"], (std::vector<int>{6, 6}));
  EXPECT_EQ(info["width"], (std::vector<int>{7, 7}));
  EXPECT_EQ(info["name"], "images of images");
  EXPECT_EQ(info["images"], 12);
  EXPECT_EQ(info["kind"], "pixels");
  EXPECT_EQ(info["channels"], 3);
  EXPECT_EQ(info["num_classes"], 2);
  EXPECT_EQ(info["bytes"], std::filesystem::file_size(out / "a.pack"));
  EXPECT_EQ(info["verified"], true);

  ASSERT_EQ(run({"pack", images(), in_out("b.pack"), "--size", "6x7", "--threads", "0"}).exit_code,
            0);
  EXPECT_TRUE(read_text(out / "a.pack") == read_text(out / "b.pack")) << "depends on the threads";
}

TEST_F(DataCommand, PacksFilesAsTheyAre) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack"), "--encoded"}).exit_code, 0);
  const ProgramResult shown = run({"info", in_out("a.pack"), "--json", in_out("i.json")});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("JPEG and PNG files"), HasSubstr("10 to 21 wide"),
                               HasSubstr("use --verify to check the images")));
  EXPECT_EQ(read_json("i.json")["kind"], "files");
  EXPECT_EQ(read_json("i.json")["verified"], false);
  const std::string pack = read_text(out / "a.pack");
  const formats::PackReader reader(as_bytes(pack), "a.pack");
  const std::string first = read_text(data / "images/cat/10.png");
  EXPECT_TRUE(std::ranges::equal(reader.record(0).bytes, as_bytes(first)));
  EXPECT_THAT(run({"pack", images(), in_out("b.pack"), "--encoded", "--size", "6x7"}).err,
              HasSubstr("remove --size or --encoded\n"));
}

// The first image has the smallest and the largest sides until others follow.
TEST_F(DataCommand, ShowsTheRangeOfTheSidesInAnyOrder) {
  struct Case {
    std::vector<std::pair<int, int>> sides;  // heights and widths
    std::vector<int> height;
    std::vector<int> width;
    const char* text;
  };
  const Case cases[] = {
      {{{9, 12}}, {9, 9}, {12, 12}, "9 pixels high, 12 wide\n"},
      {{{9, 12}, {4, 5}, {6, 8}}, {4, 9}, {5, 12}, "4 to 9 pixels high, 5 to 12 wide\n"},
      {{{6, 5}, {4, 8}, {9, 12}}, {4, 9}, {5, 12}, "4 to 9 pixels high, 5 to 12 wide\n"},
      {{{6, 8}, {9, 5}, {4, 12}}, {4, 9}, {5, 12}, "4 to 9 pixels high, 5 to 12 wide\n"},
      {{{4, 12}, {4, 7}}, {4, 4}, {7, 12}, "4 pixels high, 7 to 12 wide\n"}};
  const std::string pixels = pattern(std::size_t{9} * 12);
  for (const Case& each : cases) {
    formats::PackWriter writer(out / "a.pack", {.name = "sides", .channels = 1, .num_classes = 1},
                               static_cast<std::int64_t>(each.sides.size()));
    for (const auto& [height, width] : each.sides) {
      writer.add(
          {as_bytes(pixels).first(static_cast<std::size_t>(height * width)), 0, height, width});
    }
    writer.finish();
    const ProgramResult shown = run({"info", in_out("a.pack"), "--json", in_out("info.json")});
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr(each.text));
    EXPECT_THAT(shown.out, HasSubstr(", pixels of 1 channel, "));
    EXPECT_THAT(shown.out, HasSubstr("\nclasses    1\n")) << "without names";
    EXPECT_EQ(read_json("info.json")["height"], each.height);
    EXPECT_EQ(read_json("info.json")["width"], each.width);
  }
}

TEST_F(DataCommand, ResizesTheShorterSide) {
  ASSERT_EQ(
      run({"pack", images(), in_out("a.pack"), "--resize", "4", "--json", in_out("j")}).exit_code,
      0);
  const std::string pack = read_text(out / "a.pack");
  const formats::PackReader reader(as_bytes(pack), "a.pack");
  EXPECT_EQ(reader.record(11).height, 4);
  EXPECT_EQ(reader.record(11).width, 10) << "floor(4 * 21 / 8)";
  const ProgramResult both =
      run({"pack", images(), in_out("b.pack"), "--resize", "4", "--size", "6x7"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--resize (the shorter side) and --size (both) cannot be"));
}

TEST_F(DataCommand, PacksKnownDataSetsBySplit) {
  for (const std::string split : {"train", "test"}) {
    const ProgramResult result = run({"pack", "mnist", in_out(split), "--split", split});
    EXPECT_THAT(result.out,
                HasSubstr(split == "train" ? "MNIST train, 30 images" : "MNIST test, 20 images"))
        << result.err;
  }
}

TEST_F(DataCommand, ListsKnownDataSets) {
  const ProgramResult result = run({"list", "--json", in_out("list.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("mnist     " + (data / "mnist").string() + "\n"),
                    HasSubstr("cifar100  not here; `lockstep data get cifar100` downloads it to " +
                              (data / "cache/lockstep/cifar100").string())));
  const json list = read_json("list.json");
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0]["present"], true);
  EXPECT_EQ(list[1]["present"], false);
  EXPECT_EQ(list[1]["folder"], nullptr);
  EXPECT_EQ(list[0]["name"], "mnist");
  EXPECT_EQ(list[0]["folder"], (data / "mnist").string());
  EXPECT_EQ(list[1]["cache"], (data / "cache/lockstep/cifar10").string());
  EXPECT_FALSE(list[1].contains("problem"));

  data.write("cifar10/test_batch.bin", "alone");
  EXPECT_THAT(run({"list", "--json", in_out("list.json")}).out,
              HasSubstr("holds only a part of cifar10: data_batch_1.bin"));
  EXPECT_THAT(read_json("list.json")[1]["problem"].get<std::string>(),
              HasSubstr("holds only a part of cifar10: data_batch_1.bin"));
}

TEST_F(DataCommand, GetsWhatIsMissing) {
  const ProgramResult found = run({"get", "mnist"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(found.out, (data / "mnist").string() + "\n");
  const ProgramResult unreachable = run({"get", "cifar100"});
  EXPECT_EQ(unreachable.exit_code, 1);
  EXPECT_THAT(
      unreachable.err,
      HasSubstr("error: cannot download http://127.0.0.1:9/cifar100/cifar-100-binary.tar.gz"));
}

TEST_F(DataCommand, SaysInOneLineWhatIsWrong) {
  data.write("broken/cat/a.png", "no image");
  std::filesystem::create_directory(data / "empty");
  data.write("no.pack", "x");
  std::filesystem::create_symlink("no.pack", data / "link");
  std::filesystem::create_symlink("/dev/null", data / "null");
  std::filesystem::create_symlink("/dev/null", data / "null.png");
  const std::string to = in_out("x.pack");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{}, 2, "lockstep data needs a command (list, get, pack, info, check, preview): see"},
      {{"pakc"}, 2, "did you mean 'pack'?"},
      {{"pack"}, 2, "SOURCE is required"},
      {{"pack", "nosuch", to},
       2,
       "SOURCE must be one of mnist, cifar10, cifar100, a folder of images or a pack, got "
       "'nosuch', which does not exist\n"},
      {{"check", "mnits"}, 2, "got 'mnits', which does not exist; did you mean 'mnist'?\n"},
      {{"check", "no/mnist"}, 2, "got 'no/mnist', which does not exist\n"},
      {{"pack", images(), to, "--on-corrupt-image", "ask"},
       2,
       "must be one of stop, skip, got 'ask'"},
      {{"pack", images(), to, "--max-image-pixels", "0"}, 2, "--max-image-pixels must be from 1"},
      {{"check", "nosuch"}, 2, "data check: SOURCE must be one of mnist, cifar10"},
      {{"check", (data / "no.pack").string()}, 1, "is not a packed image file"},
      {{"check", images(), "--threads", "-1"}, 2, "data check: --threads must be from 0"},
      {{"check", images(), "--json", in_out("no/x")}, 2, "does not exist; create it first"},
      {{"preview", images(), "--out", in_out("x.png"), "--on-corrupt-image", "ask"},
       2,
       "data preview: --on-corrupt-image must be one of stop, skip"},
      {{"preview", images(), "--out", in_out("x.png"), "--size", "8", "--max-image-pixels", "79"},
       1,
       "8 pixels, at most 79 are allowed"},
      {{"pack", images(), to, "--split", "test"}, 2, "--split belongs to a known data set"},
      {{"pack", images(), to, "--data", "x"}, 2, "--data belongs to a known data set"},
      {{"pack", "mnist", to, "--split", "dev"}, 2, "--split must be one of train, test"},
      {{"pack", "mnist", to, "--data", "/nowhere"}, 2, "/nowhere does not exist"},
      {{"pack", "mnist", to, "--encoded"}, 2, "MNIST train holds pixels, not files"},
      {{"pack", images(), to, "--encoded", "--resize", "9"}, 2, "remove --resize or --encoded"},
      {{"pack", images(), to, "--encoded", "--exif-transpose"},
       2,
       "data pack: --encoded keeps files as they are; remove --exif-transpose or --encoded"},
      {{"pack", "mnist", to, "--exif-transpose"},
       2,
       "data pack: --exif-transpose belongs to a folder or pack of image files, got SOURCE mnist"},
      {{"pack", (data / "no.pack").string(), to, "--exif-transpose"},
       1,
       "no.pack is not a packed image file"},
      {{"pack", images(), to, "--size", "9", "--resize", "9"}, 2, "cannot be combined"},
      {{"pack", images(), to, "--size", "9x"}, 2, "HEIGHTxWIDTH of 1 to 65535 pixels, got '9x'"},
      {{"pack", images(), to, "--size", "9x0"}, 2, "got '9x0'"},
      {{"pack", images(), to, "--resize", "0"}, 2, "--resize must be from 1"},
      {{"pack", images(), to, "--threads", "-1"}, 2, "--threads must be from 0"},
      {{"pack", images(), to, "--threads", "x"}, 2, "must be a whole number"},
      {{"pack", images(), out.path().string()}, 2, "data pack: OUT must be a file, got"},
      {{"pack", images(), to, "--json", out.path().string()},
       2,
       "data pack: --json must be a file, got"},
      {{"pack", images(), "/dev/null"}, 2, "got /dev/null, which is a device, a pipe or a socket"},
      {{"pack", images(), (data / "null").string()}, 2, "data pack: OUT must be a file, got"},
      {{"pack", images(), to, "--json", in_out("../") + out.path().filename().string() + "/x.pack"},
       2,
       "data pack: OUT and --json must name different files, got"},
      {{"pack", images(), (data / "no.pack").string(), "--json", (data / "link").string()},
       2,
       "OUT and --json must name different files"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--json", in_out("x.png")},
       2,
       "data preview: --out and --json must name different files"},
      {{"preview", "mnist", "--out", (data / "null.png").string()},
       2,
       "data preview: --out must be a file, got"},
      {{"pack", images(), in_out("no/x.pack")}, 2, "does not exist; create it first"},
      {{"pack", (data / "empty").string(), to}, 1, "has no subfolders"},
      {{"pack", (data / "broken").string(), to}, 1, "broken/cat/a.png"},
      {{"info", to}, 1, "x.pack'; FILE must be written by `lockstep data pack SOURCE OUT`"},
      {{"info", images()},
       1,
       "' is a folder; FILE must be written by `lockstep data pack SOURCE OUT`"},
      {{"info", (data / "no.pack").string()}, 1, "is not a packed image file"},
      {{"preview", "mnist", "--out", in_out("x.jpg")}, 2, "--out must end in .png, got"},
      {{"preview", "mnist", "--out", in_out("no/x.png")}, 2, "does not exist; create it first"},
      {{"preview", "nosuch", "--out", in_out("x.png")},
       2,
       "data preview: SOURCE must be one of mnist, cifar10, cifar100, a folder of images or a "
       "pack, got"},
      {{"preview", images(), "--out", in_out("x.png"), "--operators", "recipe"},
       2,
       "data preview: --operators recipe is for the data set of a recipe"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--loader", "gpu"}, 2, "--loader must be"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--decoding", "fast"},
       2,
       "data preview: --decoding must be one of exact, scaled"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--scale", "64", "--images", "30"},
       2,
       "contact sheet: 30 rows of 8 cells of 1792x1792 pixels make an image of"},
      {{"preview", (data / "broken").string(), "--out", in_out("x.png")}, 1, "broken/cat/a.png"},
      {{"get", "imagenet"}, 2, "data set must be one of mnist, cifar10, cifar100, got 'imagenet'"},
  };
  for (const Case& c : cases) {
    const ProgramResult result = run(c.arguments);
    std::string name = "data";
    for (const std::string& word : c.arguments) name += " " + word;
    EXPECT_EQ(result.exit_code, c.exit_code) << name << "\n" << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << name << "\n"
                                                                         << result.err;
    EXPECT_THAT(result.err, AllOf(::testing::StartsWith("error: "), HasSubstr(c.text))) << name;
  }
  EXPECT_THAT(out.names(), IsEmpty());
}

TEST_F(DataCommand, WritesTheFileBehindALink) {
  data.write("real.pack", "what was there");
  std::filesystem::create_symlink(data / "real.pack", out / "a.pack");
  ASSERT_EQ(run({"pack", images(), in_out("a.pack")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(out / "a.pack"));
  EXPECT_TRUE(read_text(data / "real.pack").starts_with("LOCKPACK"));
}

// Folder names are arbitrary bytes, whereas JSON must be UTF-8.
TEST_F(DataCommand, WritesJsonOfNamesThatAreNoText) {
  const std::string image = read_text(data / "images/cat/10.png");
  data.write("odd/c\xff/a.png", image);
  const std::string odd = (data / "odd").string();
  ASSERT_EQ(run({"pack", odd, in_out("\xff.pack"), "--json", in_out("pack.json")}).exit_code, 0);
  ASSERT_EQ(run({"info", in_out("\xff.pack"), "--json", in_out("info.json")}).exit_code, 0);
  ASSERT_EQ(run({"preview", odd, "--images", "1", "--versions", "1", "--size", "8", "--out",
                 in_out("a.png"), "--json", in_out("preview.json")})
                .exit_code,
            0);
  EXPECT_THAT(read_json("pack.json")["file"].get<std::string>(), HasSubstr("/\\xff.pack"));
  for (const char* file : {"info.json", "preview.json"}) {
    EXPECT_EQ(read_json(file)["class_names"], (json{"c\\xff"})) << file;
  }
}

// A photograph of 150x150 pixels that is reduced to 16x16 is decoded at a quarter of its
// resolution.
TEST_F(DataCommand, PreviewsImagesAsItsOptionDecodesThem) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const auto sheet = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"preview",    real_data("trashnet").value().string(),
                                          "--images",   "2",
                                          "--versions", "2",
                                          "--size",     "16",
                                          "--out",      in_out("a.png")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(out / "a.png");
  };
  const std::string exact = sheet({"--decoding", "exact"});
  EXPECT_EQ(sheet({}), exact);
  EXPECT_NE(sheet({"--decoding", "scaled"}), exact);
}

TEST_F(DataCommand, CountsDamagedImages) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack")}).exit_code, 0);
  std::string pack = read_text(out / "a.pack");
  const formats::PackReader reader(as_bytes(pack), "");
  for (const std::int64_t index : {3, 11}) {  // 11 is the last one
    pack[static_cast<std::size_t>(reader.record(index).bytes.data() - as_bytes(pack).data())] ^= 1;
  }
  out.write("a.pack", pack);
  EXPECT_EQ(run({"info", in_out("a.pack")}).exit_code, 0) << "images are not looked at";
  const ProgramResult result = run({"info", in_out("a.pack"), "--verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: 2 of 12 images: "),
                                HasSubstr("a.pack: record 3 is damaged: its checksum is wrong")));
}

// Writes a truncated file, a file of another format, and one that lacks only its last chunk.
void damage_images(const TemporaryDirectory& data) {
  const auto cut = [&](const std::string& name, std::size_t bytes) {
    const std::string file = read_text(data / name);
    data.write(name, file.substr(0, file.size() - bytes));
  };
  using std::string_literals::operator""s;
  cut("images/cat/11.png", 40);
  cut("images/dog/16.png", 12);
  data.write("images/dog/18.png", "II*\0\x08\0\0\0, a TIFF file"s);
}

TEST_F(DataCommand, ChecksEveryImageOfAFolder) {
  const ProgramResult right = run({"check", images(), "--json", in_out("right.json")});
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_THAT(right.out, ::testing::StartsWith("images of images: 12 images, 0 damaged, in "));
  EXPECT_THAT(right.err, IsEmpty());
  EXPECT_EQ(read_json("right.json")["damaged"], json::array());
  const ProgramResult nowhere = run({"check", images(), "--json", ""});
  EXPECT_EQ(nowhere.exit_code, 2) << nowhere.out;
  EXPECT_THAT(nowhere.err, HasSubstr("--json: must not be empty"));

  damage_images(data);
  const ProgramResult result =
      run({"check", images(), "--threads", "2", "--json", in_out("check.json")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("damaged  " + images() + "/cat/11.png: cannot decode PNG: "),
                    HasSubstr("damaged  " + images() + "/dog/18.png: is a TIFF image, expected"),
                    HasSubstr("odd      " + images() + "/dog/16.png: the file lacks its end"),
                    HasSubstr("12 images, 2 damaged, 1 odd but complete, in ")));
  EXPECT_EQ(result.err,
            "error: data check: 2 of 12 images cannot be decoded; remove them, or train and pack "
            "with --on-corrupt-image skip\n");
  const json found = read_json("check.json");
  EXPECT_EQ(found["images"], 12);
  EXPECT_EQ(found["threads"], 2);
  EXPECT_EQ(found["source"], images());
  EXPECT_EQ(found["name"], "images of images");
  ASSERT_EQ(found["damaged"].size(), 2U);
  EXPECT_EQ(found["damaged"][0]["index"], 1);
  EXPECT_THAT(found["damaged"][1]["reason"].get<std::string>(), HasSubstr("dog/18.png"));
  ASSERT_EQ(found["odd"].size(), 1U);
  EXPECT_EQ(found["odd"][0]["index"], 6);
}

// A format that is not read is listed by a check, and skipped on request like a damaged image.
TEST_F(DataCommand, TakesAFormatThatIsNotReadForADamagedImage) {
  using std::string_literals::operator""s;
  std::filesystem::remove_all(data / "images/dog");
  for (const int image : {11, 12, 13, 14})
    std::filesystem::remove(data / lockstep::str("images/cat/", image, ".png"));
  data.write("images/cat/99.webp", "RIFF\4\0\0\0WEBP"s);
  const ProgramResult checked = run({"check", images()});
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.out, AllOf(HasSubstr("damaged  " + images() + "/cat/99.webp: is a WebP"),
                                 HasSubstr("images of images: 2 images, 1 damaged, in ")));
  EXPECT_EQ(checked.err,
            "error: data check: 1 of 2 images cannot be decoded; remove it, or train and pack "
            "with --on-corrupt-image skip\n");
  const ProgramResult refused = run({"pack", images(), in_out("a.pack")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err,
              HasSubstr("out of the folder, or skip it with --on-corrupt-image skip\n"));
  const ProgramResult packed =
      run({"pack", images(), in_out("a.pack"), "--on-corrupt-image", "skip"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, AllOf(HasSubstr("1 image as pixels in 1 class, "),
                                HasSubstr("left out " + images() + "/cat/99.webp: is a WebP")));
  EXPECT_THAT(run({"check", in_out("a.pack")}).out, HasSubstr(": 1 image, 0 damaged, in "));
  const ProgramResult shown =
      run({"preview", images(), "--images", "1", "--size", "8", "--versions", "1", "--out",
           in_out("a.png"), "--on-corrupt-image", "skip"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
}

// The images have between 80 and 168 pixels.
TEST_F(DataCommand, ChecksImagesOfAsManyPixelsAsItsOptionAllows) {
  const ProgramResult refused =
      run({"check", images(), "--max-image-pixels", "167", "--json", in_out("check.json")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out,
              HasSubstr("168 pixels, at most 167 are allowed; raise --max-image-pixels\n"));
  ASSERT_EQ(read_json("check.json")["damaged"].size(), 1U);
  EXPECT_THAT(read_json("check.json")["damaged"][0]["reason"].get<std::string>(),
              AllOf(HasSubstr("dog/21.png"), EndsWith("raise --max-image-pixels")));
  EXPECT_EQ(run({"check", images(), "--max-image-pixels", "168"}).exit_code, 0);
}

TEST_F(DataCommand, LeavesDamagedImagesOutOnRequest) {
  damage_images(data);
  EXPECT_EQ(run({"pack", images(), in_out("a.pack")}).exit_code, 1);
  const ProgramResult packed = run({"pack", images(), in_out("a.pack"), "--on-corrupt-image",
                                    "skip", "--json", in_out("pack.json")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, AllOf(HasSubstr("10 images as pixels in 2 classes"),
                                HasSubstr("left out " + images() + "/cat/11.png: cannot decode"),
                                HasSubstr("left out " + images() + "/dog/18.png: is a TIFF")));
  EXPECT_EQ(read_json("pack.json")["skipped_images"], 2);
  EXPECT_EQ(run({"check", in_out("a.pack")}).exit_code, 0);

  const std::vector<std::string> preview = {
      "preview", images(), "--images",      "12",     "--size",        "8", "--versions",
      "1",       "--out",  in_out("a.png"), "--json", in_out("a.json")};
  EXPECT_EQ(run(preview).exit_code, 1);
  std::vector<std::string> skipping = preview;
  skipping.insert(skipping.end(), {"--on-corrupt-image", "skip"});
  const ProgramResult shown = run(skipping);
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("10 images of images of images"),
                               HasSubstr("left out " + images() + "/cat/11.png")));
  EXPECT_EQ(shown.err.find("warning:"), shown.err.rfind("warning:")) << "of the odd file, once";
  const json sheet = read_json("a.json");
  EXPECT_EQ(sheet["skipped_images"], 2);
  EXPECT_EQ(sheet["rows"].size(), 10U);
}

TEST_F(DataCommand, ChecksEveryImageOfAPack) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack"), "--encoded"}).exit_code, 0);
  EXPECT_EQ(run({"check", in_out("a.pack")}).exit_code, 0);
  std::string pack = read_text(out / "a.pack");
  const formats::PackReader reader(as_bytes(pack), "");
  pack[static_cast<std::size_t>(reader.record(3).bytes.data() - as_bytes(pack).data()) + 9] ^= 1;
  out.write("a.pack", pack);
  const ProgramResult result = run({"check", in_out("a.pack")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("damaged  " + in_out("a.pack") + ": record 3 is damaged"));
}

// What a program writes to its standard error, which is a terminal. Nothing without terminals.
template <class Run>
std::optional<std::string> drawn_on_terminal(const Run& run) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return std::nullopt;
  int other_end = -1;
  if (grantpt(terminal) == 0 && unlockpt(terminal) == 0) {
    other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  std::optional<std::string> text;
  if (other_end >= 0) {
    run([&] {
      dup2(other_end, STDERR_FILENO);
      setenv("TERM", "xterm", 1);
      setenv("NO_COLOR", "1", 1);
    });
    close(other_end);
    text.emplace();
    char buffer[4096];
    // Once all have closed the other end, reading fails behind the last byte.
    for (ssize_t length; (length = read(terminal, buffer, sizeof buffer)) > 0;) {
      text->append(buffer, static_cast<std::size_t>(length));
    }
  }
  close(terminal);
  return text;
}

// Images are checked before they are packed only if damaged ones are left out.
TEST_F(DataCommand, DrawsABarForEachPassOnATerminal) {
  const auto drawn = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words = {"pack", images(), in_out("a.pack"), "--threads", "0"};
    words.insert(words.end(), options.begin(), options.end());
    return drawn_on_terminal([&](const std::function<void()>& before_exec) {
      EXPECT_EQ(run(words, before_exec).exit_code, 0);
    });
  };
  const auto packed = drawn({});
  if (!packed) GTEST_SKIP() << "no pseudo-terminals here";
  const char* const clear_line = "\r\x1b[K";
  EXPECT_THAT(*packed, AllOf(HasSubstr("packing "), HasSubstr("1 of 12 images")));
  EXPECT_THAT(*packed, ::testing::Not(HasSubstr("checking")));
  EXPECT_THAT(*packed, EndsWith(clear_line)) << "the bar is removed";
  const std::string both = drawn({"--on-corrupt-image", "skip"}).value();
  EXPECT_THAT(both, HasSubstr("packing "));
  EXPECT_LT(both.find("checking "), both.find("packing "));
  EXPECT_THAT(both, EndsWith(clear_line));
}

TEST_F(DataCommand, AFullDiskLeavesNothing) {
  const ProgramResult full = run({"pack", images(), in_out("a.pack")}, [] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3000, 3000};
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err, "error: cannot write " + in_out("a.pack") + ": File too large\n");
  EXPECT_THAT(out.names(), IsEmpty());
}

// Waits until the program has started its output file, for at most 30 s.
void wait_for_pack(const TemporaryDirectory& out) {
  const Clock::time_point begin = Clock::now();
  const auto begun = [&] {
    const std::vector<std::string> names = out.names();
    return !names.empty() && names.front().starts_with("a.pack");
  };
  while (!begun() && seconds_since(begin) < 30) std::this_thread::yield();
}

// Reading the twelve images takes a while. The signal arrives when the output file has been
// started.
TEST_F(DataCommand, ASignalLeavesNothing) {
  ProgramRun packing =
      start({"pack", images(), in_out("a.pack"), "--size", "3000", "--threads", "0"});
  wait_for_pack(out);
  EXPECT_EQ(kill(packing.pid(), SIGTERM), 0);
  const ProgramResult result = packing.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_EQ(result.err, "error: interrupted by signal 15 (Terminated)\n");
  EXPECT_THAT(out.names(), IsEmpty());
}

TEST_F(DataCommand, AnIgnoredSignalDoesNotStopIt) {
  for (const int number : {SIGINT, SIGTERM}) {
    ProgramRun packing =
        start({"pack", images(), in_out("a.pack"), "--size", "1500", "--threads", "0"},
              [number] { signal(number, SIG_IGN); });
    wait_for_pack(out);
    EXPECT_EQ(kill(packing.pid(), number), 0);
    const ProgramResult result = packing.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(out.names(), ::testing::ElementsAre("a.pack"));
    std::filesystem::remove(out / "a.pack");
  }
}

}  // namespace
}  // namespace lockstep::testing_support
