// `lockstep data preview` as its users see it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <lockstep/formats/png.h>
#include <tests/cli/data/data_command.h>
#include <tests/cli/data/photographs.h>
#include <tests/cli/program_run.h>
#include <tests/support/data_bytes.h>
#include <tests/support/devices/dali.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A sheet read from a PNG file: its size, its pixels, and the number of pixels that are not grey.
struct Sheet {
  ImageHeader header;
  std::vector<std::uint8_t> rgb;
  int colorful = 0;
};

Sheet read_sheet(const std::filesystem::path& path) {
  const std::string file = read_text(path);
  detail::PngDecoder decoder;
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
  EXPECT_EQ(shown["file"], in_out("a.png"));
  EXPECT_EQ(shown["source"], "mnist");
  EXPECT_EQ(shown["dataset"], "MNIST train");
  EXPECT_EQ(shown["engine"], "native");
  EXPECT_EQ(shown["mix"], "none");
  EXPECT_EQ(shown["seed"], 3);
  EXPECT_EQ(shown["skipped_images"], 0);
  EXPECT_EQ(shown["rows"][0]["versions"][0]["epoch"], 4);
  EXPECT_EQ(shown["operators"], (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
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

TEST_F(DataCommand, NamesTheOptionThatCannotBePreviewed) {
  struct Case {
    std::string source;
    std::vector<std::string> options;
    const char* expected;
  };
  const Case cases[] = {
      {"mnist", {"--loader", "gpu"}, "--loader must be one of native, "},
      {"mnist",
       {"--loader", "dali", "--decoding", "scaled"},
       "--decoding scaled needs --loader native, got dali\n"},
      {"mnist", {"--mix", "blur"}, "--mix must be one of "},
      {"mnist", {"--size", "0"}, "--size must be from 1 to 65536, got 0\n"},
      {images(),
       {"--data", "x"},
       "--data belongs to a known data set (mnist, cifar10, cifar100); SOURCE names a folder or a "
       "pack itself\n"},
      {images(),
       {"--operators", "crop-flip"},
       "--operators crop-flip needs images of one size, and those of images of images have each "
       "their own; use random-resized-crop\n"}};
  for (const auto& [source, options, expected] : cases) {
    std::vector<std::string> words = {"preview", source, "--out", in_out("x.png")};
    words.insert(words.end(), options.begin(), options.end());
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_THAT(result.err, ::testing::StartsWith(str("error: data preview: ", expected)));
  }
  EXPECT_THAT(out.names(), IsEmpty());
}

// A pack of MNIST has one channel, as the recipe's images have, but is not the recipe's data.
TEST_F(DataCommand, PreviewsGreyImagesThatAreNoRecipes) {
  ASSERT_EQ(run({"pack", "mnist", in_out("grey.pack")}).exit_code, 0);
  for (const std::string operators : {"normalize", "random-resized-crop"}) {
    const ProgramResult result =
        run({"preview", in_out("grey.pack"), "--operators", operators, "--size", "16", "--images",
             "2", "--versions", "1", "--out", in_out("a.png")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(read_sheet(out / "a.png").colorful, 0) << operators;
  }
}

TEST_F(DataCommand, PreviewsPhotographsUpright) {
  write_photographs(data);
  const auto sheet_of = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "preview");
    options.insert(options.end(), {"--size", "16", "--images", "1", "--versions", "3", "--out",
                                   in_out("sheet.png")});
    const ProgramResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(out / "sheet.png");
  };
  const std::string expected = sheet_of({(data / "b/photos").string()});
  EXPECT_TRUE(sheet_of({(data / "a/photos").string(), "--exif-transpose"}) == expected);
  EXPECT_FALSE(sheet_of({(data / "a/photos").string()}) == expected) << "the default";
  EXPECT_THAT(run({"preview", "mnist", "--exif-transpose", "--out", in_out("sheet.png")}).err,
              HasSubstr("--exif-transpose belongs to a folder or pack of image files, got SOURCE "
                        "mnist"));
  // A pack of files holds their EXIF, too, and one of pixels does not.
  const std::string photos = (data / "a/photos").string();
  ASSERT_EQ(run({"pack", photos, in_out("files.pack"), "--encoded"}).exit_code, 0);
  EXPECT_TRUE(sheet_of({in_out("files.pack"), "--exif-transpose"}) == expected);
  ASSERT_EQ(run({"pack", photos, in_out("pixels.pack")}).exit_code, 0);
  const ProgramResult refused =
      run({"preview", in_out("pixels.pack"), "--exif-transpose", "--out", in_out("sheet.png")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("pixels.pack holds decoded images without their EXIF "
                                     "orientation; remove --exif-transpose, and pack the "
                                     "photographs again with `lockstep data pack "
                                     "--exif-transpose`\n"));
}

TEST_F(DataCommand, PacksPhotographsUpright) {
  write_photographs(data);
  const auto pack_of = [&](const char* photos, std::vector<std::string> options) {
    const std::string to = in_out("photos.pack");
    options.insert(options.begin(), {"pack", (data / photos).string(), to});
    const ProgramResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(to);
  };
  const std::string expected = pack_of("b/photos", {});
  EXPECT_TRUE(pack_of("a/photos", {"--exif-transpose"}) == expected);
  EXPECT_FALSE(pack_of("a/photos", {}) == expected) << "the default";
  EXPECT_FALSE(pack_of("a/photos", {"--exif-transpose", "--resize", "7"}) == expected);
}

// Writes one file under six names, as long as the real ones.
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
  const ProgramResult result = run({"preview", "cifar10", "--out", in_out("a.png"), "--images", "3",
                                    "--versions", "2", "--json", in_out("a.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(read_sheet(out / "a.png").colorful, 0);
  const json shown = read_json("a.json");
  EXPECT_EQ(shown["dataset"], "CIFAR-10 train");
  EXPECT_EQ(shown["class_names"][0], "airplane");
  EXPECT_EQ(shown["operators"], (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
  EXPECT_EQ(shown["rows"].size(), 3U);
}

TEST_F(DataCommand, PreviewsCifar100) {
  data.write("cifar100/cifar-100-binary/train.bin", cifar100_records(50'000));
  data.write("cifar100/cifar-100-binary/test.bin", cifar100_records(10'000));
  const ProgramResult result = run({"preview", "cifar100", "--out", in_out("a.png"), "--images",
                                    "3", "--versions", "2", "--json", in_out("a.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = read_json("a.json");
  EXPECT_EQ(shown["dataset"], "CIFAR-100 train");
  EXPECT_EQ(shown["class_names"].size(), 100U);
  EXPECT_EQ(shown["operators"], (json{"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize"}));
  const ProgramResult refused =
      run({"preview", "cifar100", "--operators", "recipe", "--out", in_out("b.png")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("--operators recipe is for the data set of a recipe; use crop-flip"));
}

TEST_F(DataCommand, PreviewsTheOperatorsThatItIsTold) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"recipe", {"Normalize"}},
      {"normalize", {"Normalize"}},
      {"crop-flip-cutout", {"Pad", "RandomCrop", "RandomHorizontalFlip", "Normalize", "Cutout"}},
      {"random-resized-crop", {"RandomResizedCrop", "RandomHorizontalFlip", "Normalize"}}};
  for (const auto& [word, operators] : cases) {
    const ProgramResult result =
        run({"preview", "mnist", "--operators", word, "--out", in_out("a.png"), "--images", "1",
             "--versions", "1", "--json", in_out("a.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(read_json("a.json")["operators"], json(operators)) << word;
  }
}

// The folder that the user names is the only place to search, for recipes and for other data sets.
TEST_F(DataCommand, LooksForKnownDataWhereItIsTold) {
  std::filesystem::create_directory(data / "elsewhere");
  const std::string folder = (data / "elsewhere").string();
  const std::vector<std::string> commands[] = {{"preview", "mnist", "--out", in_out("x.png")},
                                               {"preview", "cifar10", "--out", in_out("x.png")},
                                               {"preview", "cifar100", "--out", in_out("x.png")},
                                               {"pack", "cifar100", in_out("x.pack")}};
  for (std::vector<std::string> words : commands) {
    const std::string expected = str(" in ", folder, " or its subfolder ", words[1], "\n");
    words.insert(words.end(), {"--data", folder});
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 1) << words[0] << ' ' << words[1];
    EXPECT_THAT(result.err, ::testing::StartsWith("error: cannot find ")) << words[0];
    EXPECT_THAT(result.err, ::testing::EndsWith(expected)) << words[0];
  }
  write_mnist(data, "elsewhere/train", 7);
  write_mnist(data, "elsewhere/t10k", 5);
  EXPECT_THAT(run({"check", "mnist", "--data", folder}).out,
              ::testing::StartsWith("MNIST train: 7 images, 0 damaged, in "));
  EXPECT_THAT(run({"check", "mnist", "--data", folder, "--split", "test"}).out,
              ::testing::StartsWith("MNIST test: 5 images, 0 damaged, in "));
  EXPECT_THAT(run({"preview", "mnist", "--data", folder, "--images", "30", "--versions", "1",
                   "--out", in_out("a.png")})
                  .out,
              HasSubstr(": 7 images of MNIST train, 1 version of each, "));
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

}  // namespace
}  // namespace lockstep::testing_support
