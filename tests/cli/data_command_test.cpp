// `lockstep data` as its users meet it.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/pack.h>
#include <lockstep/formats/png.h>
#include <tests/cli/program_run.h>
#include <tests/support/dali.h>
#include <tests/support/data_bytes.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder of images, a small MNIST, and nothing of the user's own in sight.
class DataCommand : public ::testing::Test {
 protected:
  DataCommand() {
    for (int i = 0; i < 12; ++i) {
      const int width = 10 + i;
      const std::string pixels = pattern(static_cast<std::size_t>(width * 8 * 3));
      data.write("images/" + std::string(i < 5 ? "cat/" : "dog/") + std::to_string(10 + i) + ".png",
                 encode_png({reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()},
                            width, 8));
    }
    write_mnist(data, "mnist/train", 30);
    write_mnist(data, "mnist/t10k", 20);
  }

  ProgramRun start(const std::vector<std::string>& arguments,
                   const std::function<void()>& before_exec = {}) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "data"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return ProgramRun(words,
                      {{"XDG_CACHE_HOME", (data / "cache").string()},
                       {"LOCKSTEP_DATA", data.path().string()},
                       {"LOCKSTEP_MIRROR", "http://127.0.0.1:9"}},
                      before_exec);
  }
  ProgramResult run(const std::vector<std::string>& arguments,
                    const std::function<void()>& before_exec = {}) const {
    return start(arguments, before_exec).wait();
  }
  std::string images() const { return (data / "images").string(); }
  std::string in_out(const std::string& name) const { return (out / name).string(); }
  json read_json(const std::string& name) const { return json::parse(read_text(out / name)); }

  TemporaryDirectory data;
  TemporaryDirectory out;
};

TEST_F(DataCommand, PacksAFolderAndShowsWhatItHolds) {
  const ProgramResult packed = run({"pack", images(), in_out("a.pack"), "--size", "6x7",
                                    "--threads", "3", "--json", in_out("pack.json")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("a.pack: images of images, 12 images as pixels in 2 classes"));
  EXPECT_THAT(packed.err, IsEmpty()) << "no bar where there is no terminal";
  const json summary = read_json("pack.json");
  EXPECT_EQ(summary["images"], 12);
  EXPECT_EQ(summary["bytes"], std::filesystem::file_size(out / "a.pack"));
  EXPECT_EQ(summary["threads"], 3);

  const ProgramResult shown =
      run({"info", in_out("a.pack"), "--verify", "--json", in_out("i.json")});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("12, pixels of 3 channels, 6 pixels high, 7 wide"),
                               HasSubstr("2: cat, dog"), HasSubstr("checksums  right")));
  const json info = read_json("i.json");
  EXPECT_EQ(info["class_names"], (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(info["height"], (std::vector<int>{6, 6}));
  EXPECT_EQ(info["verified"], true);

  ASSERT_EQ(run({"pack", images(), in_out("b.pack"), "--size", "6x7", "--threads", "0"}).exit_code,
            0);
  EXPECT_TRUE(read_text(out / "a.pack") == read_text(out / "b.pack")) << "depends on the threads";
}

TEST_F(DataCommand, PacksFilesAsTheyAre) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack"), "--encoded"}).exit_code, 0);
  const ProgramResult shown = run({"info", in_out("a.pack")});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("JPEG and PNG files"), HasSubstr("10 to 21 wide"),
                               HasSubstr("--verify checks the images")));
  const std::string pack = read_text(out / "a.pack");
  const PackReader reader(as_bytes(pack), "a.pack");
  const std::string first = read_text(data / "images/cat/10.png");
  EXPECT_TRUE(std::ranges::equal(reader.record(0).bytes, as_bytes(first)));
}

TEST_F(DataCommand, ResizesTheShorterSide) {
  ASSERT_EQ(
      run({"pack", images(), in_out("a.pack"), "--resize", "4", "--json", in_out("j")}).exit_code,
      0);
  const std::string pack = read_text(out / "a.pack");
  const PackReader reader(as_bytes(pack), "a.pack");
  EXPECT_EQ(reader.record(11).height, 4);
  EXPECT_EQ(reader.record(11).width, 10) << "floor(4 * 21 / 8)";
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

  data.write("cifar10/test_batch.bin", "alone");
  EXPECT_THAT(run({"list"}).out, HasSubstr("holds only a part of cifar10: data_batch_1.bin"));
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

// The sheet in a PNG file: its size, its pixels, and how many of these are not grey.
struct Sheet {
  ImageHeader header;
  std::vector<std::uint8_t> rgb;
  int colorful = 0;
};

Sheet read_sheet(const std::filesystem::path& path) {
  const std::string file = read_text(path);
  PngDecoder decoder;
  Sheet sheet;
  sheet.header = decoder.open(as_bytes(file), path.string());
  std::vector<std::uint8_t>& rgb = sheet.rgb;
  rgb.resize(rgb_bytes(whole(sheet.header)));
  decoder.decode(whole(sheet.header), rgb);
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    if (rgb[i] != rgb[i + 1] || rgb[i] != rgb[i + 2]) ++sheet.colorful;
  }
  return sheet;
}

TEST_F(DataCommand, PreviewsARecipe) {
  const ProgramResult result =
      run({"preview", "mnist", "--operators", "crop-flip", "--out", in_out("a.png"), "--images",
           "5", "--versions", "2", "--seed", "3", "--epoch", "4", "--json", in_out("a.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = read_json("a.json");
  EXPECT_EQ(result.out,
            str(in_out("a.png"), ": 5 images of MNIST train, 2 versions of each, ",
                shown["width"].get<int>(), "x", shown["height"].get<int>(), " pixels\n"));
  EXPECT_THAT(result.err, IsEmpty());
  const Sheet sheet = read_sheet(out / "a.png");
  EXPECT_EQ(sheet.header.width, shown["width"]);
  EXPECT_EQ(sheet.header.height, shown["height"]);
  EXPECT_GT(sheet.header.width, 3 * 4 * 28) << "28 pixels are enlarged to 112";
  EXPECT_EQ(sheet.colorful, 0);
  EXPECT_EQ(shown["operators"],
            (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
  ASSERT_EQ(shown["rows"].size(), 5U);
  for (const json& row : shown["rows"]) {
    EXPECT_EQ(row["label"], row["index"].get<int>() % 10);
    ASSERT_EQ(row["versions"].size(), 2U);
    EXPECT_EQ(row["versions"][1]["epoch"], 5);
    EXPECT_EQ(row["versions"][1]["labels"], (json{{{"label", row["label"]}, {"share", 1.0}}}));
  }

  ASSERT_EQ(run({"preview", "mnist", "--operators", "crop-flip", "--out", in_out("b.png"),
                 "--images", "5", "--versions", "2", "--seed", "3", "--epoch", "4"})
                .exit_code,
            0);
  EXPECT_TRUE(read_text(out / "a.png") == read_text(out / "b.png")) << "the same choices again";
}

TEST_F(DataCommand, PreviewsFoldersAndPacksWithMixedLabels) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack"), "--size", "16x20"}).exit_code, 0);
  for (const std::string& source : {images(), in_out("a.pack")}) {
    const ProgramResult result =
        run({"preview", source, "--size", "12", "--images", "2", "--versions", "3", "--mix",
             "random", "--out", in_out("a.png"), "--json", in_out("a.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(read_sheet(out / "a.png").colorful, 0);
    const json shown = read_json("a.json");
    EXPECT_EQ(shown["class_names"], (json{"cat", "dog"}));
    EXPECT_EQ(shown["operators"][0], "RandomResizedCrop");
    for (const json& version : shown["rows"][1]["versions"]) {
      double sum = 0;
      for (const json& label : version["labels"]) sum += label["share"].get<double>();
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  }
}

// Six files as long as the real ones: one, under six names.
void write_cifar10(const TemporaryDirectory& data) {
  const std::string folder = "cifar10/";
  data.write(folder + "test_batch.bin", cifar_records(10'000));
  for (int i = 1; i <= 5; ++i) {
    std::filesystem::create_hard_link(data / (folder + "test_batch.bin"),
                                      data / (folder + str("data_batch_", i, ".bin")));
  }
}

TEST_F(DataCommand, PreviewsCifar10) {
  write_cifar10(data);
  const ProgramResult result =
      run({"preview", "cifar10", "--out", in_out("a.png"), "--images", "3", "--versions", "2",
           "--json", in_out("a.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(read_sheet(out / "a.png").colorful, 0);
  const json shown = read_json("a.json");
  EXPECT_EQ(shown["dataset"], "CIFAR-10 train");
  EXPECT_EQ(shown["class_names"][0], "airplane");
  EXPECT_EQ(shown["operators"],
            (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
  EXPECT_EQ(shown["rows"].size(), 3U);
}

TEST_F(DataCommand, PreviewsCifar100) {
  data.write("cifar100/cifar-100-binary/train.bin", cifar100_records(50'000));
  data.write("cifar100/cifar-100-binary/test.bin", cifar100_records(10'000));
  const ProgramResult result =
      run({"preview", "cifar100", "--out", in_out("a.png"), "--images", "3", "--versions", "2",
           "--json", in_out("a.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = read_json("a.json");
  EXPECT_EQ(shown["dataset"], "CIFAR-100 train");
  EXPECT_EQ(shown["class_names"].size(), 100U);
  EXPECT_EQ(shown["operators"], (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
  const ProgramResult refused =
      run({"preview", "cifar100", "--operators", "recipe", "--out", in_out("b.png")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--operators recipe is for the data set of a recipe; use crop-flip"));
}

class DaliPreview : public DataCommand, public ::testing::WithParamInterface<const char*> {};

TEST_P(DaliPreview, ShowsWhatTheNativeOneShows) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  write_cifar10(data);
  const auto sheet_of = [&](const std::string& loader) {
    const ProgramResult result =
        run({"preview", GetParam(), "--loader", loader, "--operators", "crop-flip", "--images", "3",
             "--versions", "2", "--out", in_out("a.png"), "--json", in_out("a.json")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(read_json("a.json")["engine"], loader);
    return read_sheet(out / "a.png").rgb;
  };
  const std::vector<std::uint8_t> native = sheet_of("native");
  const std::vector<std::uint8_t> dali = sheet_of("dali");
  ASSERT_EQ(native.size(), dali.size());
  EXPECT_FALSE(native == dali) << "the heading names the loader";
  const auto below = static_cast<std::ptrdiff_t>(native.size() / 5);
  EXPECT_TRUE(std::equal(native.begin() + below, native.end(), dali.begin() + below));
}

INSTANTIATE_TEST_SUITE_P(Recipes, DaliPreview, ::testing::Values("mnist", "cifar10"),
                         [](const auto& info) { return std::string(info.param); });

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
      {{}, 2, "a subcommand is required: see lockstep data --help"},
      {{"pakc"}, 2, "did you mean 'pack'?"},
      {{"pack"}, 2, "SOURCE is required"},
      {{"pack", "nosuch", to},
       2,
       "there is no data set, folder or pack 'nosuch'; known data sets are mnist"},
      {{"pack", images(), to, "--on-corrupt-image", "ask"}, 2, "must be one of stop, skip, got 'ask'"},
      {{"pack", images(), to, "--max-image-pixels", "0"}, 2, "--max-image-pixels must be from 1"},
      {{"check", "nosuch"}, 2, "data check: there is no data set, folder or pack 'nosuch'"},
      {{"check", (data / "no.pack").string()}, 1, "is no packed image file"},
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
      {{"pack", images(), to, "--encoded", "--resize", "9"}, 2, "leave --resize or --encoded out"},
      {{"pack", images(), to, "--size", "9", "--resize", "9"}, 2, "exclude each other"},
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
       "data pack: OUT and --json must be two files, got"},
      {{"pack", images(), (data / "no.pack").string(), "--json", (data / "link").string()},
       2,
       "OUT and --json must be two files"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--json", in_out("x.png")},
       2,
       "data preview: --out and --json must be two files"},
      {{"preview", "mnist", "--out", (data / "null.png").string()},
       2,
       "data preview: --out must be a file, got"},
      {{"pack", images(), in_out("no/x.pack")}, 2, "does not exist; create it first"},
      {{"pack", (data / "empty").string(), to}, 1, "has no subfolders"},
      {{"pack", (data / "broken").string(), to}, 1, "broken/cat/a.png"},
      {{"info", to}, 1, "x.pack: No such file"},
      {{"info", (data / "no.pack").string()}, 1, "is no packed image file"},
      {{"preview", "mnist", "--out", in_out("x.jpg")}, 2, "--out must end in .png, got"},
      {{"preview", "mnist", "--out", in_out("no/x.png")}, 2, "does not exist; create it first"},
      {{"preview", "nosuch", "--out", in_out("x.png")},
       2,
       "data preview: SOURCE must be one of mnist, cifar10, cifar100, a folder of images or a pack, got"},
      {{"preview", images(), "--out", in_out("x.png"), "--operators", "recipe"},
       2,
       "data preview: --operators recipe is for the data set of a recipe"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--loader", "gpu"}, 2, "--loader must be"},
      {{"preview", "mnist", "--out", in_out("x.png"), "--scale", "64", "--images", "30"},
       2,
       "contact sheet: 30 rows of 8 cells of 1792x1792 pixels make an image of"},
      {{"preview", (data / "broken").string(), "--out", in_out("x.png")}, 1, "broken/cat/a.png"},
      {{"get", "imagenet"}, 2, "unknown data set 'imagenet', expected one of mnist, cifar10"},
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

// Names of folders are any bytes, JSON is UTF-8.
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
  EXPECT_THAT(read_json("pack.json")["file"].get<std::string>(), HasSubstr("/\uFFFD.pack"));
  for (const char* file : {"info.json", "preview.json"}) {
    EXPECT_EQ(read_json(file)["class_names"], (json{"c\uFFFD"})) << file;
  }
}

TEST_F(DataCommand, CountsDamagedImages) {
  ASSERT_EQ(run({"pack", images(), in_out("a.pack")}).exit_code, 0);
  std::string pack = read_text(out / "a.pack");
  const PackReader reader(as_bytes(pack), "");
  for (const std::int64_t index : {3, 7}) {
    pack[static_cast<std::size_t>(reader.record(index).bytes.data() - as_bytes(pack).data())] ^= 1;
  }
  out.write("a.pack", pack);
  EXPECT_EQ(run({"info", in_out("a.pack")}).exit_code, 0) << "images are not looked at";
  const ProgramResult result = run({"info", in_out("a.pack"), "--verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: 2 of 12 images: "),
                                HasSubstr("a.pack: record 3 is damaged: its checksum is wrong")));
}

// A file that is cut, one that is another format's, and one that only lacks its last chunk.
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
            "error: data check: 2 of 12 images cannot be decoded; move them away, or leave them out "
            "with --on-corrupt-image skip\n");
  const json found = read_json("check.json");
  EXPECT_EQ(found["images"], 12);
  ASSERT_EQ(found["damaged"].size(), 2U);
  EXPECT_EQ(found["damaged"][0]["index"], 1);
  EXPECT_THAT(found["damaged"][1]["reason"].get<std::string>(), HasSubstr("dog/18.png"));
  ASSERT_EQ(found["odd"].size(), 1U);
  EXPECT_EQ(found["odd"][0]["index"], 6);
}

TEST_F(DataCommand, LeavesDamagedImagesOutOnRequest) {
  damage_images(data);
  EXPECT_EQ(run({"pack", images(), in_out("a.pack")}).exit_code, 1);
  const ProgramResult packed = run({"pack", images(), in_out("a.pack"), "--on-corrupt-image", "skip",
                                    "--json", in_out("pack.json")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, AllOf(HasSubstr("10 images as pixels in 2 classes"),
                                HasSubstr("left out " + images() + "/cat/11.png: cannot decode"),
                                HasSubstr("left out " + images() + "/dog/18.png: is a TIFF")));
  EXPECT_EQ(read_json("pack.json")["skipped_images"], 2);
  EXPECT_EQ(run({"check", in_out("a.pack")}).exit_code, 0);

  const std::vector<std::string> preview = {"preview",    images(), "--images", "12", "--size",
                                            "8",          "--versions", "1",    "--out",
                                            in_out("a.png"), "--json", in_out("a.json")};
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
  const PackReader reader(as_bytes(pack), "");
  pack[static_cast<std::size_t>(reader.record(3).bytes.data() - as_bytes(pack).data()) + 9] ^= 1;
  out.write("a.pack", pack);
  const ProgramResult result = run({"check", in_out("a.pack")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("damaged  " + in_out("a.pack") + ": record 3 is damaged"));
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

// Twelve images that take a while each; the signal comes when the file has been begun.
TEST_F(DataCommand, ASignalLeavesNothing) {
  ProgramRun packing =
      start({"pack", images(), in_out("a.pack"), "--size", "3000", "--threads", "0"});
  const Clock::time_point begin = Clock::now();
  const auto begun = [&] {
    const std::vector<std::string> names = out.names();
    return !names.empty() && names.front().starts_with("a.pack.tmp");
  };
  while (!begun() && seconds_since(begin) < 30) std::this_thread::yield();
  EXPECT_EQ(kill(packing.pid(), SIGTERM), 0);
  const ProgramResult result = packing.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_EQ(result.err, "error: interrupted by signal 15 (Terminated)\n");
  EXPECT_THAT(out.names(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing_support
