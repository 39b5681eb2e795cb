// `lockstep train --data FILE.pack`, and what evaluates and uses its networks.
#include <cstdint>
#include <filesystem>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <lockstep/formats/png.h>
#include <lockstep/formats/safetensors.h>
#include <tests/cli/trained/trained_nets.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainPack : public TrainedNets {
 protected:
  void write_photos(const std::string& name) const {
    std::mt19937 random(7);
    for (int number = 0; number < 16; ++number) {
      const int width = 60 + 3 * number;
      const int height = 90 - 2 * number;
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height * 3));
      for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
      scratch.write(lockstep::str(name, "/class", number % 2, "/", number, ".png"),
                    detail::encode_png(pixels, width, height));
    }
  }
  void pack(const std::string& source, const std::string& name, const Words& more = {}) const {
    const ProgramResult packed = run(joined({"data", "pack", source, in_scratch(name)}, more));
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  ProgramResult train_on(const std::string& recipe, const std::string& name,
                         const Words& more) const {
    return run(joined({"train", recipe, "--data", in_scratch(name), "--batch-size", "4",
                       "--max-epochs", "2", "--threads", "1", "--accelerator", "cpu"},
                      more));
  }
  // The bytes of all weights. The metadata says where the images were.
  std::string weights_of(const std::string& run_name) const {
    const std::string bytes = read_text(scratch / run_name / "checkpoint.safetensors");
    std::string all;
    for (const auto& [name, tensor] : parse_safetensors(as_bytes(bytes), run_name).tensors) {
      all += name;
      all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    return all;
  }
};

// Augmentation, split, order and class names are those of the folder, and so are all weights.
TEST_F(TrainPack, TrainsAsOnItsFolder) {
  write_photos("photos");
  pack(in_scratch("photos"), "pixels.pack");
  pack(in_scratch("photos"), "files.pack", {"--encoded"});
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"autoencoder", "40", "1"}, {"autoencoder", "40", "2"}, {"classify", "64", "2"}};
  for (const auto& [recipe, side, ranks] : cases) {
    std::vector<std::string> weights;
    std::vector<nlohmann::json> records;
    for (const char* source : {"photos", "pixels.pack", "files.pack"}) {
      const std::string out = lockstep::str(recipe, ranks, source);
      const ProgramResult result =
          train_on(recipe, source,
                   {"--image-size", side, "--nproc-per-node", ranks, "--seed", "3",
                    "--val-fraction", "0.25", "--out", in_scratch(out)});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, HasSubstr("split by seed 3: 12 images to train on, 4 to validate"));
      weights.push_back(weights_of(out));
      records.push_back(nlohmann::json::parse(read_text(scratch / out / "run.json")));
    }
    ASSERT_GT(weights[0].size(), 10'000U);
    for (std::size_t i = 1; i < weights.size(); ++i) {
      EXPECT_TRUE(weights[i] == weights[0]) << recipe << ranks << i;
      EXPECT_EQ(records[i]["validation"], records[0]["validation"]);
      EXPECT_EQ(records[i]["provenance"], records[0]["provenance"]);
    }
  }
}

TEST_F(TrainPack, TrainsOnAKnownDataSetThatWasPacked) {
  std::filesystem::create_directory(scratch / "packs");
  pack("mnist", "packs/train.pack");
  pack("mnist", "packs/test.pack", {"--split", "test"});
  train_net("mnist", {"--batch-size", "24"});
  const std::string expected = weights_of("run");
  const nlohmann::json files = read_json("run.json");
  train_net("mnist", {"--batch-size", "24", "--data", in_scratch("packs"), "--overwrite"});
  const nlohmann::json packs = read_json("run.json");
  EXPECT_TRUE(weights_of("run") == expected);
  EXPECT_EQ(packs["validation"], files["validation"]);
  EXPECT_EQ(packs["provenance"]["split"], files["provenance"]["split"]);

  // Evaluating and predicting read the packs, too.
  const ProgramResult evaluated =
      use("evaluate", {"--json", in_scratch("e.json"), "--csv", in_scratch("e.csv")});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(read_json("e.json")["loss"], packs["validation"]["loss"]);
  EXPECT_EQ(read_json("e.json")["dataset"], "packs (train.pack, test.pack)");
  const std::string test = in_scratch("packs/test.pack");
  const ProgramResult predicted = use("predict", {test, "--json", in_scratch("p.json")});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const nlohmann::json images = read_json("p.json")["images"];
  const std::vector<std::string> rows = lines_in("e.csv");
  ASSERT_EQ(images.size(), 64U);
  for (std::size_t i = 0; i < images.size(); ++i) {
    EXPECT_EQ(images[i]["image"], lockstep::str(test, '#', i));
    const auto& best = images[i]["classes"][0];
    const std::string row = lockstep::str(images[i]["image"].get<std::string>(), ',', i % 10, ',',
                                          best["name"].get<std::string>(), ',');
    ASSERT_EQ(rows[i + 1].substr(0, row.size()), row);
    EXPECT_EQ(std::stod(rows[i + 1].substr(row.size())), best["probability"].get<double>());
  }
  EXPECT_THAT(use("evaluate", {"--data", test}).out, HasSubstr("mnist: test.pack, all: 64 images"));
}

// Pixels cannot be turned, whatever the run did with its files.
TEST_F(TrainPack, UsesPixelsAsTheyWerePacked) {
  write_colours(scratch, "photos", 8, 2);
  pack(in_scratch("photos"), "files.pack", {"--encoded"});
  pack(in_scratch("photos"), "pixels.pack", {"--exif-transpose"});
  train_net("classify", {"--data", in_scratch("files.pack"), "--image-size", "64", "--batch-size",
                         "2", "--val-fraction", "0.5", "--exif-transpose"});
  ASSERT_EQ(use("evaluate", {}).exit_code, 0) << "splits the images as the run did";
  ASSERT_EQ(use("evaluate", {"--data", in_scratch("pixels.pack")}).exit_code, 0);
  ASSERT_EQ(use("predict", {in_scratch("pixels.pack")}).exit_code, 0);
  expect_one_error(use("predict", {in_scratch("pixels.pack"), "--exif-transpose"}), 2,
                   "pixels.pack holds decoded images without their EXIF orientation; remove "
                   "--exif-transpose, and pack",
                   "predict");
}

TEST_F(TrainPack, IsEvaluatedAsItWasSplit) {
  write_photos("photos");
  pack(in_scratch("photos"), "photos.pack", {"--encoded"});
  train_net("classify", {"--data", in_scratch("photos.pack"), "--image-size", "64", "--batch-size",
                         "3", "--val-fraction", "0.5", "--seed", "2"});
  const Words json = {"--json", in_scratch("e.json")};
  const ProgramResult own = use("evaluate", json);
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_EQ(read_json("e.json")["images"], 8);
  EXPECT_EQ(read_json("e.json")["loss"], read_json("run.json")["validation"]["loss"]);
  // A bad image is found again by its name: predict names all images of the pack in their order.
  const nlohmann::json worst = read_json("e.json")["worst"];
  ASSERT_EQ(worst.size(), 8U);
  ASSERT_EQ(use("predict",
                {in_scratch("photos.pack"), "--batch-size", "3", "--json", in_scratch("p.json")})
                .exit_code,
            0);
  const nlohmann::json all = read_json("p.json")["images"];
  std::set<std::int64_t> indices;
  for (const nlohmann::json& image : worst) {
    const auto index = image["index"].get<std::int64_t>();
    indices.insert(index);
    const nlohmann::json& found = all.at(static_cast<std::size_t>(index));
    EXPECT_EQ(image["image"], found["image"]);
    EXPECT_EQ(image["image"], lockstep::str(in_scratch("photos.pack"), '#', index));
    EXPECT_EQ(image["predicted"], found["classes"][0]["name"]);
    EXPECT_NEAR(image["probability"].get<double>(),
                found["classes"][0]["probability"].get<double>(), 1e-4);
  }
  EXPECT_EQ(indices.size(), 8U);
  EXPECT_GT(*indices.rbegin(), 7) << "indices in the part";
  ASSERT_EQ(use("evaluate", joined({"--data", in_scratch("photos.pack")}, json)).exit_code, 0);
  EXPECT_EQ(read_json("e.json")["split"], "all");
  EXPECT_EQ(read_json("e.json")["images"], 16);
  const nlohmann::json of_pack = read_json("e.json");
  ASSERT_EQ(use("evaluate", joined({"--data", in_scratch("photos")}, json)).exit_code, 0);
  EXPECT_EQ(read_json("e.json")["loss"], of_pack["loss"]) << "the folder has the same images";

  // Another pack in its place has other images, of which the network may have seen any.
  write_colours(scratch, "others", 16, 2);
  pack(in_scratch("others"), "photos.pack", {"--encoded"});
  const ProgramResult replaced = use("evaluate", {});
  EXPECT_EQ(replaced.exit_code, 1);
  EXPECT_EQ(replaced.error_lines(), 1);
  EXPECT_THAT(replaced.err, HasSubstr("evaluate: the images in " + in_scratch("photos.pack") +
                                      " are not those of the run"));
}

// As after a change of a folder.
TEST_F(TrainPack, ResumesOnTheSamePackOnly) {
  write_photos("photos");
  pack(in_scratch("photos"), "photos.pack");
  const auto resume = [&](const Words& more) {
    return train_on("autoencoder", "photos.pack",
                    joined({"--image-size", "40", "--out", in_scratch("run")}, more));
  };
  ASSERT_EQ(resume({"--max-epochs", "1"}).exit_code, 0);
  pack(in_scratch("photos"), "photos.pack");
  const ProgramResult same = resume({"--resume"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("does not repeat"))) << "packed again from the same images";
  pack(in_scratch("photos"), "photos.pack", {"--resize", "50"});
  const ProgramResult changed = resume({"--resume", "--max-epochs", "3"});
  EXPECT_NE(changed.exit_code, 0);
  EXPECT_EQ(changed.error_lines(), 1) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr("was trained with another split of the samples"));
}

TEST_F(TrainPack, SkipsDamagedImagesOnRequest) {
  write_photos("photos");
  pack(in_scratch("photos"), "photos.pack");
  std::string bytes = read_text(scratch / "photos.pack");
  bytes.back() ^= 1;
  scratch.write("photos.pack", bytes);
  const Words options = {"--image-size", "40", "--max-epochs", "1", "--batch-size", "8"};
  expect_one_error(train_on("autoencoder", "photos.pack", options), 1,
                   "photos.pack: record 15 is damaged", "stops");
  const ProgramResult skipping =
      train_on("autoencoder", "photos.pack", joined(options, {"--on-corrupt-image", "skip"}));
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_THAT(skipping.err, HasSubstr("warning: skipped image"));
}

TEST_F(TrainPack, SaysInOneLineWhatIsWrong) {
  write_colours(scratch, "photos", 10, 2);
  pack(in_scratch("photos"), "pixels.pack");
  pack("mnist", "digits.pack");
  scratch.write("photo.jpg", "no pack");
  const std::string pixels = in_scratch("pixels.pack");
  const std::string digits = in_scratch("digits.pack");
  struct Case {
    Words arguments;
    int exit_code;
    std::string text;
  };
  const Case cases[] = {
      {{"classify", "--data", pixels, "--exif-transpose"},
       2,
       "train: --exif-transpose has no effect on " + pixels +
           ", which holds decoded images; remove --exif-transpose, or pack files with `lockstep "
           "data pack --encoded`"},
      {{"classify", "--data", pixels, "--decoding", "scaled"},
       2,
       "train: --decoding has no effect on " + pixels},
      {{"classify", "--data", pixels, "--max-image-pixels", "9"},
       2,
       "train: --max-image-pixels has no effect on " + pixels},
      {{"classify", "--data", in_scratch("photo.jpg")}, 1, "is not a packed image file"},
      {{"mnist", "--data", pixels}, 1, "holds images of 3 channels, but the network takes 1"},
      {{"cifar10", "--data", digits}, 1, "pack them with `lockstep data pack --size 32x32`"},
      {{"mnist", "--data", digits, "--val-fraction", "0"}, 2, "each part needs at least 1 image"},
      {{"mnist", "--cache", "1GB"}, 2, "train: --cache has no effect on mnist unless --data is a"},
      {{"autoencoder", "--data", in_scratch("none.pack")}, 2, "none.pack does not exist; give a"},
      {{"classify", "--data", pixels, "--cache", "1GB", "--loader", "dali"},
       2,
       "train: --cache belongs to --loader native, got --loader dali"}};
  for (const Case& each : cases) {
    expect_one_error(run(joined({"train"}, each.arguments)), each.exit_code, each.text, each.text);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
