// `lockstep predict` as its users see it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <lockstep/formats/png.h>
#include <lockstep/formats/safetensors.h>
#include <tests/cli/data/photographs.h>
#include <tests/cli/trained/trained_nets.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class PredictCommand : public TrainedNets {
 protected:
  ProgramResult predict(const Words& more) const {
    return use("predict", joined(more, {"--json", in_scratch("p.json")}));
  }
  /// A copy of the run's weights whose metadata lacks the notes, as earlier versions wrote it.
  std::string weights_without_notes() const {
    const std::string bytes = read_text(scratch / "run/checkpoint.safetensors");
    const Safetensors content = parse_safetensors(as_bytes(bytes), "weights");
    SafetensorsMetadata metadata;
    for (const auto& [name, text] : content.metadata) {
      if (!name.starts_with("note.")) metadata[name] = text;
    }
    scratch.write("old.safetensors", serialize_safetensors(content.tensors, metadata));
    return in_scratch("old.safetensors");
  }
  void write_grey(const std::string& name, int side, std::uint8_t value) const {
    const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(side * side * 3), value);
    scratch.write(name, detail::encode_png(pixels, side, side));
  }
};

// Both commands read the images in one order, in batches of one size.
TEST_F(PredictCommand, SaysWhatTheEvaluationSays) {
  train_photos();
  ASSERT_EQ(
      use("evaluate", {"--data", in_scratch("photos"), "--csv", in_scratch("e.csv")}).exit_code, 0);
  const ProgramResult result = predict(
      {in_scratch("photos"), "--top-k", "9", "--workers", "3", "--csv", in_scratch("p.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const nlohmann::json predicted = read_json("p.json");
  EXPECT_EQ(predicted["recipe"], "classify");
  EXPECT_EQ(predicted["recipe_options"]["image_size"], "64");
  EXPECT_EQ(predicted["class_names"], (nlohmann::json{"class0", "class1"}));
  const std::vector<std::string> evaluated = lines_in("e.csv"), rows = lines_in("p.csv");
  ASSERT_EQ(predicted["images"].size(), 20U);
  ASSERT_EQ(evaluated.size(), 21U);
  ASSERT_EQ(rows.size(), 21U);
  EXPECT_EQ(rows[0], "image,class_1,probability_1,class_2,probability_2,error");
  for (std::size_t i = 0; i < 20; ++i) {
    const nlohmann::json& image = predicted["images"][i];
    const nlohmann::json& classes = image["classes"];
    ASSERT_EQ(classes.size(), 2U) << "at most all classes are shown";
    const auto file = image["image"].get<std::string>();
    const auto best = classes[0]["name"].get<std::string>();
    // IMAGE,CLASS,PREDICTED,PROBABILITY,LOSS
    const std::string expected = str(file, ",class", i < 10 ? 0 : 1, ',', best, ',');
    ASSERT_EQ(evaluated[i + 1].substr(0, expected.size()), expected);
    const auto first = classes[0]["probability"].get<double>();
    const auto second = classes[1]["probability"].get<double>();
    EXPECT_EQ(std::stod(evaluated[i + 1].substr(expected.size())), first);
    EXPECT_GE(first, second);
    EXPECT_NEAR(first + second, 1, 1e-6);
    const std::string row = str(file, ',', best, ',');
    EXPECT_EQ(rows[i + 1].substr(0, row.size()), row);
    EXPECT_TRUE(rows[i + 1].ends_with(',')) << "no error";
  }
  EXPECT_THAT(result.out, AllOf(HasSubstr("probability  others\n"),
                                HasSubstr(in_scratch("photos/class0/000.png") + "  class")));
}

TEST_F(PredictCommand, WritesTheSameFilesWithAnyNumberOfWorkers) {
  train_photos();
  std::string rows, json;
  for (const char* workers : {"1", "3"}) {
    // The last argument goes before the second one in the alphabet.
    ASSERT_EQ(
        predict({in_scratch("photos"), in_scratch("photos/class1/001.png"),
                 in_scratch("photos/class0"), "--workers", workers, "--csv", in_scratch("p.csv")})
            .exit_code,
        0);
    const std::string rows_now = read_text(scratch / "p.csv");
    const std::string json_now = read_text(scratch / "p.json");
    EXPECT_TRUE(rows.empty() || (rows_now == rows && json_now == json)) << workers;
    rows = rows_now;
    json = json_now;
  }
  const std::vector<std::string> lines = lines_in("p.csv");
  ASSERT_EQ(lines.size(), 1U + 20 + 1 + 10);
  EXPECT_TRUE(std::is_sorted(lines.begin() + 1, lines.begin() + 21));
  EXPECT_EQ(lines[21].substr(0, lines[21].find(',')), in_scratch("photos/class1/001.png"));
  EXPECT_EQ(lines[22].substr(0, lines[22].find(',')), in_scratch("photos/class0/000.png"));
  EXPECT_TRUE(std::is_sorted(lines.begin() + 22, lines.end()));
}

TEST_F(PredictCommand, NamesEachFileThatIsNoImageAndGoesOn) {
  train_photos();
  write_colours(scratch, "new", 3, 1);
  const std::string good = read_text(scratch / "new/class0/000.png");
  scratch.write("new/class0/cut.png", good.substr(0, good.size() / 2));
  scratch.write("notes.txt", "no image");
  const ProgramResult result = predict({in_scratch("new"), in_scratch("notes.txt"),
                                        in_scratch("nosuch.jpg"), "--csv", in_scratch("p.csv")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error_lines(), 1) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("error: predict: 3 of 6 images cannot be read; the first: "),
                    HasSubstr("cut.png")));
  const nlohmann::json images = read_json("p.json")["images"];
  ASSERT_EQ(images.size(), 6U);
  const char* const damaged[] = {"cut.png", "notes.txt", "nosuch.jpg"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(images[i].contains("classes"));
    EXPECT_FALSE(images[i + 3].contains("classes"));
    EXPECT_THAT(images[i + 3]["error"].get<std::string>(), HasSubstr(damaged[i]));
    EXPECT_THAT(result.out,
                HasSubstr(str("\nunreadable  ", images[i + 3]["error"].get<std::string>())));
  }
  EXPECT_THAT(lines_in("p.csv")[4], HasSubstr("cut.png,,,,,"));

  // The predictions of the others do not depend on the damaged ones.
  ASSERT_EQ(predict({in_scratch("new/class0/000.png"), in_scratch("new/class0/001.png"),
                     in_scratch("new/class0/002.png")})
                .exit_code,
            0);
  const nlohmann::json alone = read_json("p.json")["images"];
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(images[i], alone[i]);

  expect_one_error(predict({in_scratch("notes.txt")}), 1, "predict: 1 of 1 image cannot be read",
                   "nothing can be read");
}

// The data set's images have one size and one channel; a file may have any.
TEST_F(PredictCommand, PreparesFilesForANetOfSmallGreyImages) {
  train_net("mnist", {"--batch-size", "16"});
  write_grey("28.png", 28, 90);
  write_grey("56.png", 56, 90);
  const ProgramResult result =
      predict({in_scratch("28.png"), in_scratch("56.png"), "--top-k", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json images = read_json("p.json")["images"];
  ASSERT_EQ(images[0]["classes"].size(), 1U);
  EXPECT_THAT(result.out, AllOf(HasSubstr("  class  probability\n"), Not(HasSubstr(" \n"))));
  const nlohmann::json &small = images[0]["classes"][0], &large = images[1]["classes"][0];
  EXPECT_EQ(small["name"], large["name"]) << "they have one colour";
  EXPECT_NEAR(small["probability"].get<double>(), large["probability"].get<double>(), 1e-6);
}

// A photograph is turned on request, or if the run turned its own, as the note in the file says.
TEST_F(PredictCommand, TurnsPhotographsAndLimitsTheirSize) {
  train_net("mnist", {"--batch-size", "16"});
  write_photographs(scratch);
  const std::string lying = in_scratch("a/photos/cat/1.png");
  const auto classes_with = [&](const Words& words) {
    const ProgramResult result =
        run(joined({"predict"}, joined(words, {"--json", in_scratch("p.json")})));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_json("p.json")["images"][0]["classes"];
  };
  const std::string weights = in_scratch("run");
  const nlohmann::json upright = classes_with({weights, in_scratch("b/photos/cat/1.png")});
  EXPECT_NE(classes_with({weights, lying}), upright) << "the default";
  EXPECT_EQ(classes_with({weights, lying, "--exif-transpose"}), upright);
  const std::string bytes = read_text(scratch / "run/checkpoint.safetensors");
  const Safetensors content = parse_safetensors(as_bytes(bytes), "weights");
  SafetensorsMetadata metadata = content.metadata;
  metadata["note.exif_transpose"] = "yes";
  scratch.write("turned.safetensors", serialize_safetensors(content.tensors, metadata));
  EXPECT_EQ(classes_with({in_scratch("turned.safetensors"), lying}), upright);

  expect_one_error(use("predict", {lying, "--max-image-pixels", "599"}), 1,
                   "600 pixels, at most 599 are allowed; raise --max-image-pixels", "599");
  expect_one_error(use("predict", {lying, "--max-image-pixels", "0"}), 2,
                   "predict: --max-image-pixels must be from 1 to ", "0");
}

TEST_F(PredictCommand, GivesTheLossOfAnAutoencoder) {
  write_colours(scratch, "photos", 10, 2);
  train_net("autoencoder",
            {"--data", in_scratch("photos"), "--image-size", "40", "--batch-size", "4"});
  const ProgramResult result = predict({in_scratch("photos"), "--csv", in_scratch("p.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(use("evaluate", {"--split", "all", "--csv", in_scratch("e.csv")}).exit_code, 0);
  const std::vector<std::string> predicted = lines_in("p.csv"), evaluated = lines_in("e.csv");
  ASSERT_EQ(predicted.size(), 11U);
  ASSERT_EQ(evaluated.size(), 11U);
  EXPECT_EQ(predicted[0], "image,loss,error");
  for (std::size_t i = 1; i < 11; ++i) EXPECT_EQ(predicted[i], evaluated[i] + ',');
  EXPECT_GT(read_json("p.json")["images"][0]["loss"].get<double>(), 0);
}

TEST_F(PredictCommand, FindsTheCheckpoint) {
  train_net("mnist", {"--batch-size", "16", "--save-top-k", "loss:1"});
  write_grey("grey.png", 28, 90);
  nlohmann::json expected;
  for (const char* name : {"run", "run/latest", "run/best", "run/checkpoints",
                           "run/checkpoints/latest", "run/checkpoint.safetensors"}) {
    const ProgramResult result =
        run({"predict", in_scratch(name), in_scratch("grey.png"), "--threads", "1", "--accelerator",
             "cpu", "--json", in_scratch("p.json")});
    ASSERT_EQ(result.exit_code, 0) << name << result.err;
    const nlohmann::json images = read_json("p.json")["images"];
    if (expected.is_null()) expected = images;
    EXPECT_EQ(images, expected) << name;
    // The folder that the name leads to: a step for each of the four batches.
    const std::string folder = in_scratch("run/checkpoints/step-00000004");
    EXPECT_THAT(result.out, StartsWith("checkpoint " + folder + " (epoch 1, step 4)\n")) << name;
    const nlohmann::json predicted = read_json("p.json");
    EXPECT_EQ(predicted["checkpoint"], folder);
    EXPECT_EQ(predicted["epoch"], 1);
    EXPECT_EQ(predicted["step"], 4);
  }
  // A file system without links has none to the weights.
  for (const char* link : {"run/checkpoint.safetensors", "run/checkpoints/latest"}) {
    std::filesystem::remove(scratch / link);
  }
  ASSERT_EQ(predict({in_scratch("grey.png")}).exit_code, 0);
  EXPECT_EQ(read_json("p.json")["images"], expected);
}

TEST_F(PredictCommand, ReadsCheckpointsOfEarlierVersions) {
  train_photos();
  const std::string old = weights_without_notes();
  const std::string image = in_scratch("photos/class0/000.png");
  const ProgramResult result = run({"predict", old, image, "--json", in_scratch("p.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err,
            "note: " + old +
                ", which an earlier version or another program wrote, does not say the names of "
                "its classes and how its images are prepared; classes are named by their numbers, "
                "and images are prepared as in this version of recipe classify\n");
  const nlohmann::json classes = read_json("p.json")["images"][0]["classes"];
  EXPECT_THAT(result.out, StartsWith("checkpoint " + old + "\n")) << "a file that is no run's";
  EXPECT_EQ(read_json("p.json")["checkpoint"], old);
  EXPECT_TRUE(read_json("p.json")["step"].is_null());
  ASSERT_EQ(classes.size(), 2U);
  const auto first = classes[0]["name"].get<std::string>();
  EXPECT_TRUE(first == "0" || first == "1") << first;
  const ProgramResult without = run({"evaluate", old});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err,
              HasSubstr("does not say which images the run was trained on; give --data"));
  const ProgramResult evaluated = run({"evaluate", old, "--data", in_scratch("photos")});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("\nclass0 ")) << "the data has names";
}

TEST_F(PredictCommand, SaysInOneLineWhatIsWrong) {
  train_net("mnist", {"--batch-size", "32"});
  write_grey("grey.png", 28, 90);
  const std::string image = in_scratch("grey.png");
  std::filesystem::create_directory(scratch / "empty");
  const std::string bytes = read_text(scratch / "run/checkpoint.safetensors");
  const Safetensors content = parse_safetensors(as_bytes(bytes), "weights");
  const auto with_classes = [&](const std::string& name, const std::string& classes) {
    SafetensorsMetadata metadata = content.metadata;
    metadata["note.classes"] = classes;
    scratch.write(name, serialize_safetensors(content.tensors, metadata));
    return in_scratch(name);
  };
  struct Case {
    Words words;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{in_scratch("nosuch"), image}, 2, "nosuch does not exist; give the folder"},
      {{in_scratch("empty"), image}, 2, "empty holds no checkpoint; give the folder"},
      {{with_classes("two.safetensors", R"(["cat","dog"])"), image},
       1,
       "two.safetensors names 2 classes, but its network has 10 outputs"},
      {{with_classes("none.safetensors", "cat"), image},
       1,
       "none.safetensors: its classes must be a list of names, got cat"},
      {{image, image}, 1, "grey.png: is a PNG image, not a file of weights"},
      {{in_scratch("run"), in_scratch("empty")}, 1, "empty: holds no .jpg"},
      {{in_scratch("run"), image, "--top-k", "0"}, 2, "--top-k must be at least 1, got 0"},
      {{in_scratch("run"), image, "--accelerator", "gpu"}, 2, "write --accelerator cuda"},
      {{in_scratch("run"), image, "--csv", in_scratch("no/such.csv")}, 2, "--csv: the folder"},
      {{in_scratch("run"), image, "--image-size", "30"}, 2, "takes images of 28x28 pixels only"},
      {{in_scratch("run")}, 2, "FILES"},
  };
  for (const Case& each : cases) {
    expect_one_error(run(joined({"predict"}, each.words)), each.exit_code, each.text, each.text);
  }
  EXPECT_THAT(run({"predict", in_scratch("run"), image}).err, IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing_support
