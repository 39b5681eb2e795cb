// `lockstep evaluate` as its users see it.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <tests/cli/trained/trained_nets.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class EvaluateCommand : public TrainedNets {
 protected:
  /// Expects the loss and the values of the training's last evaluation, bit for bit.
  void expect_results_of_run(const nlohmann::json& evaluated) const {
    const nlohmann::json reported = read_json("run.json")["validation"];
    for (const auto& [name, value] : reported.items()) EXPECT_EQ(evaluated[name], value) << name;
    EXPECT_TRUE(reported.contains("loss"));
  }
};

TEST_F(EvaluateCommand, ComputesWhatTheTrainingComputed) {
  const Words variants[] = {{}, {"--precision", "bf16"}, {"--ema-decay", "0.5"}};
  for (const Words& variant : variants) {
    train_net("mnist", joined({"--batch-size", "24", "--overwrite"}, variant));
    const ProgramResult result = use("evaluate", {"--json", in_scratch("e.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    const nlohmann::json evaluated = read_json("e.json");
    expect_results_of_run(evaluated);
    EXPECT_EQ(evaluated["averaged"], !variant.empty() && variant[0] == "--ema-decay");
    EXPECT_EQ(evaluated["images"], 64);
    EXPECT_EQ(evaluated["split"], "validation");
    EXPECT_EQ(evaluated["recipe"], "mnist");
    EXPECT_EQ(evaluated["step"], 3) << "64 images in batches of 24";
    EXPECT_THAT(result.out, HasSubstr("/step-00000003 (epoch 1, step 3)\nmnist: MNIST, "));
    EXPECT_EQ(evaluated["averaged"], result.out.find(", averaged weights\n") != std::string::npos);
    EXPECT_EQ(evaluated["worst"].size(), 16U);
    const std::string listed = result.out.substr(result.out.find("\nlargest losses") + 1);
    EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), 6) << "a heading and five images";
  }
}

// The file of rows is an independent count of what the matrix and the scores say.
TEST_F(EvaluateCommand, CountsClassByClass) {
  train_net("mnist", {"--batch-size", "16"});
  const ProgramResult result = use("evaluate", {"--split", "train", "--json", in_scratch("e.json"),
                                                "--csv", in_scratch("e.csv"), "--worst", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json evaluated = read_json("e.json");
  EXPECT_EQ(evaluated["dataset"], "MNIST");
  std::vector<std::string> lines = lines_in("e.csv");
  EXPECT_EQ(lines[0], "image,class,predicted,probability,loss");
  lines.erase(lines.begin());
  ASSERT_EQ(lines.size(), 64U);
  std::vector<std::vector<int>> counts(10, std::vector<int>(10));
  std::vector<double> losses;
  int correct = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string start = str('#', i, ',', i % 10, ',');
    ASSERT_EQ(lines[i].substr(0, start.size()), start);
    const int predicted = lines[i][start.size()] - '0';
    ++counts[i % 10][static_cast<std::size_t>(predicted)];
    correct += predicted == static_cast<int>(i % 10) ? 1 : 0;
    losses.push_back(std::stod(lines[i].substr(lines[i].rfind(',') + 1)));
  }
  EXPECT_EQ(evaluated["confusion"]["rows"], nlohmann::json(counts));
  EXPECT_TRUE(evaluated["confusion"]["rows"][0][0].is_number_integer());
  EXPECT_DOUBLE_EQ(evaluated["accuracy"].get<double>(), correct / 64.0);
  double sum = 0;
  for (const double loss : losses) sum += loss;
  EXPECT_NEAR(evaluated["loss"].get<double>(), sum / 64, 1e-5);
  for (std::size_t label = 0; label < 10; ++label) {
    const nlohmann::json& scores = evaluated["classes"][label];
    int predicted = 0;
    for (const auto& row : counts) predicted += row[label];
    EXPECT_EQ(scores["name"], std::to_string(label));
    EXPECT_EQ(scores["images"], label < 4 ? 7 : 6);
    EXPECT_EQ(scores["predicted"], predicted);
    EXPECT_EQ(scores["correct"], counts[label][label]);
    EXPECT_EQ(scores["precision"].is_null(), predicted == 0);
  }
  std::sort(losses.rbegin(), losses.rend());
  ASSERT_EQ(evaluated["worst"].size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const nlohmann::json& image = evaluated["worst"][i];
    EXPECT_EQ(image["loss"], losses[i]);
    const auto index = image["index"].get<std::size_t>();
    EXPECT_EQ(image["image"], str('#', index));
    const std::string& row = lines.at(index);
    const std::string words = str('#', index, ',', image["class"].get<std::string>(), ',',
                                  image["predicted"].get<std::string>(), ',');
    EXPECT_EQ(row.substr(0, words.size()), words);
    EXPECT_EQ(image["probability"], std::stod(row.substr(words.size())));
  }
  for (const char* score : {"precision", "recall", "f1"}) {
    double all = 0;
    int known = 0;
    for (const nlohmann::json& each : evaluated["classes"]) {
      if (each[score].is_null()) continue;
      all += each[score].get<double>();
      ++known;
    }
    ASSERT_GT(known, 0);
    EXPECT_NEAR(evaluated["mean"][score].get<double>(), all / known, 1e-12) << score;
  }
  EXPECT_EQ(evaluated["recipe_options"], nlohmann::json::object());
  EXPECT_THAT(result.out, HasSubstr("\n(mean)      64  "));
  EXPECT_THAT(result.out, AllOf(HasSubstr("mnist: MNIST, train: 64 images, accuracy "),
                                HasSubstr("\nclass   images  precision"),
                                HasSubstr("\nclass \\ predicted"), HasSubstr("\nlargest losses")));
}

TEST_F(EvaluateCommand, LeavesALargeConfusionMatrixToTheFile) {
  write_colours(scratch, "many", 34, 17);
  train_net("classify", {"--data", in_scratch("many"), "--image-size", "64", "--batch-size", "27"});
  const ProgramResult result =
      use("evaluate", {"--data", in_scratch("many"), "--json", in_scratch("e.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\nthe confusion matrix of 17 classes is too large to print; write "
                              "it with --json FILE\n"),
                    HasSubstr("\nclass16 "), Not(HasSubstr("class \\ predicted"))));
  EXPECT_EQ(read_json("e.json")["confusion"]["rows"].size(), 17U);
  EXPECT_EQ(read_json("e.json")["recipe_options"]["image_size"], "64");
}

TEST_F(EvaluateCommand, KnowsTheImagesOfTheRun) {
  train_photos();
  const ProgramResult result =
      use("evaluate", {"--json", in_scratch("e.json"), "--sheet", in_scratch("worst.png")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json evaluated = read_json("e.json");
  expect_results_of_run(evaluated);
  EXPECT_EQ(evaluated["images"], 4) << "a fifth of them";
  EXPECT_EQ(evaluated["confusion"]["labels"], (nlohmann::json{"class0", "class1"}));
  EXPECT_THAT(evaluated["worst"][0]["image"].get<std::string>(),
              HasSubstr(in_scratch("photos") + "/class"));
  EXPECT_EQ(read_text(scratch / "worst.png").substr(1, 3), "PNG");
  EXPECT_EQ(evaluated["worst"].size(), 4U);
  ASSERT_EQ(use("evaluate", {"--worst", "4", "--sheet", in_scratch("four.png")}).exit_code, 0);
  EXPECT_TRUE(read_text(scratch / "worst.png") == read_text(scratch / "four.png"))
      << "has places for images that do not exist";

  // A folder without parts is evaluated as a whole, and one with parts by its validation part.
  ASSERT_EQ(
      use("evaluate", {"--data", in_scratch("photos"), "--json", in_scratch("e.json")}).exit_code,
      0);
  EXPECT_EQ(read_json("e.json")["images"], 20);
  EXPECT_EQ(read_json("e.json")["split"], "all");
  write_colours(scratch, "parts/train", 6, 2);
  write_colours(scratch, "parts/val", 2, 2);
  ASSERT_EQ(
      use("evaluate", {"--data", in_scratch("parts"), "--json", in_scratch("e.json")}).exit_code,
      0);
  EXPECT_EQ(read_json("e.json")["images"], 2);
  EXPECT_EQ(read_json("e.json")["split"], "validation");

  // After a change of the names the split at random would be another one.
  std::filesystem::rename(scratch / "photos/class0/000.png", scratch / "photos/class0/zzz.png");
  const ProgramResult renamed = use("evaluate", {});  // also notes how the images are split
  EXPECT_EQ(renamed.exit_code, 1);
  EXPECT_EQ(renamed.error_lines(), 1);
  EXPECT_THAT(renamed.err, HasSubstr("are not those of the run, so the images"));
}

// A split at random has the images in an order of its own. The rows are in that of the folder,
// however many threads read the images.
TEST_F(EvaluateCommand, HasRowsInTheOrderOfTheFolder) {
  write_colours(scratch, "photos", 40, 2);
  for (int i = 0; i < 6; ++i) {
    scratch.write(str("photos/class", i % 2, "/0", 9 - i, ".webp"),
                  std::string("RIFF\4\0\0\0WEBP", 12));
  }
  train_net("classify", {"--data", in_scratch("photos"), "--image-size", "64", "--batch-size", "24",
                         "--val-fraction", "0.5", "--on-corrupt-image", "skip", "--cache", "none",
                         "--nproc-per-node", "2"});
  std::string first;
  for (const char* workers : {"1", "3"}) {
    use("evaluate",
        {"--workers", workers, "--csv", in_scratch("e.csv"), "--json", in_scratch("e.json")});
    const std::string rows = read_text(scratch / "e.csv");
    EXPECT_TRUE(first.empty() || rows == first) << rows << first;
    first = rows;
  }
  std::vector<std::string> images;
  for (const std::string& line : lines_in("e.csv")) {
    images.push_back(line.substr(0, line.find(',')));
  }
  images.erase(images.begin());
  EXPECT_GT(images.size(), 16U);
  EXPECT_TRUE(std::ranges::is_sorted(images)) << first;
  std::vector<int> unreadable;
  const nlohmann::json evaluated = read_json("e.json");
  for (const nlohmann::json& each : evaluated["unreadable"]) {
    unreadable.push_back(each["index"].get<int>());
  }
  EXPECT_TRUE(std::ranges::is_sorted(unreadable)) << evaluated["unreadable"];
}

TEST_F(EvaluateCommand, LeavesOutWhatCannotBeReadAndSaysSo) {
  train_photos();
  write_colours(scratch, "new", 5, 2);
  scratch.write("new/class1/broken.png", "no image");
  const Words options = {"--data", in_scratch("new"), "--json", in_scratch("e.json")};
  const ProgramResult result = use("evaluate", options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error_lines(), 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: evaluate: 1 of 6 images cannot be read and was "
                                          "not evaluated; the first: "),
                                HasSubstr("new/class1/broken.png")));
  EXPECT_THAT(result.out, HasSubstr("\nunreadable  "));
  const nlohmann::json evaluated = read_json("e.json");
  EXPECT_EQ(evaluated["images"], 5);
  EXPECT_EQ(evaluated["unreadable"][0]["index"], 5);
  std::filesystem::remove(scratch / "new/class1/broken.png");
  ASSERT_EQ(use("evaluate", options).exit_code, 0);
  EXPECT_EQ(read_json("e.json")["images"], 5);
}

// A run that skips images of formats that are not read has split the images with them.
TEST_F(EvaluateCommand, KnowsTheSplitOfARunThatSkippedAFormat) {
  for (const char* name : {"photos/class0/0.webp", "photos/class1/1.webp"}) {
    scratch.write(name, std::string("RIFF\4\0\0\0WEBP", 12));
  }
  train_photos({"--on-corrupt-image", "skip", "--cache", "none", "--batch-size", "18"});
  std::size_t images = 0;
  std::size_t unreadable = 0;
  for (const char* part : {"validation", "train"}) {
    const ProgramResult result = use("evaluate", {"--split", part, "--json", in_scratch("e.json")});
    EXPECT_THAT(result.err, Not(HasSubstr("are not those of the run, so the images"))) << part;
    const nlohmann::json evaluated = read_json("e.json");
    images += evaluated["images"].get<std::size_t>();
    unreadable += evaluated["unreadable"].size();
    EXPECT_EQ(result.exit_code, evaluated["unreadable"].empty() ? 0 : 1) << result.err;
  }
  EXPECT_EQ(images, 20U);
  EXPECT_EQ(unreadable, 2U);
  const ProgramResult all = use("evaluate", {"--data", in_scratch("photos")});
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_THAT(all.err,
              HasSubstr("error: evaluate: 2 of 22 images cannot be read and were not evaluated"));
  EXPECT_THAT(all.out, HasSubstr("0.webp: is a WebP image"));
}

TEST_F(EvaluateCommand, HasTheErrorOfEachImageOfAnAutoencoder) {
  write_colours(scratch, "photos", 10, 2);
  train_net("autoencoder", {"--data", in_scratch("photos"), "--image-size", "40", "--batch-size",
                            "4", "--val-fraction", "0.5", "--seed", "3"});
  const ProgramResult result =
      use("evaluate", {"--json", in_scratch("e.json"), "--csv", in_scratch("e.csv"), "--sheet",
                       in_scratch("worst.png")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json evaluated = read_json("e.json");
  expect_results_of_run(evaluated);
  EXPECT_TRUE(evaluated.contains("psnr"));
  EXPECT_FALSE(evaluated.contains("classes"));
  const std::vector<std::string> lines = lines_in("e.csv");
  ASSERT_EQ(lines.size(), 6U) << "half of the images";
  EXPECT_EQ(lines[0], "image,loss");
  double sum = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    sum += std::stod(lines[i].substr(lines[i].rfind(',') + 1));
  }
  EXPECT_NEAR(evaluated["loss"].get<double>(), sum / 5, 1e-6);
  EXPECT_EQ(evaluated["worst"].size(), 5U);
  EXPECT_TRUE(std::filesystem::exists(scratch / "worst.png"));
}

TEST_F(EvaluateCommand, SaysInOneLineWhatIsWrong) {
  expect_one_error(use("evaluate", {}), 2, "run does not exist; give the folder", "no checkpoint");
  train_photos();
  write_colours(scratch, "three", 6, 3);
  write_colours(scratch, "one", 2, 1);
  for (const char* name : {"torn/class0/a.png", "torn/class1/b.png"}) scratch.write(name, "torn");
  struct Case {
    Words arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{"--data", in_scratch("three")},
       1,
       "checkpoint.safetensors: the network has no class 'class2'; the network has class0, class1"},
      {{"--data", in_scratch("one")}, 1, "the class 'class1' is missing"},
      {{"--data", in_scratch("nosuch")},
       2,
       "nosuch does not exist; give a folder with a subfolder of images for each class, a file"},
      {{"--data", in_scratch("torn")}, 1, "error: evaluate: none of the 2 images of "},
      {{"--split", "test"}, 2, "--split must be one of validation, train, all, got 'test'"},
      {{"--worst", "-1"}, 2, "--worst must be from 0 to 1000, got -1"},
      {{"--sheet", "a.jpg"}, 2, "--sheet must end in .png"},
      {{"--sheet", "a.png", "--worst", "0"}, 2, "--sheet shows the worst images"},
      {{"--batch-size", "0"}, 2, "--batch-size must be from 1 to"},
      {{"--workers", "0"}, 2, "--workers must be from 1 to"},
      {{"--csv", in_scratch("a"), "--json", in_scratch("a")}, 2, "must name different files"},
      {{"--sheet", in_scratch("a.png"), "--json", in_scratch("a.png")},
       2,
       "evaluate: --sheet and --json must name different files"},
      {{"--sheet", in_scratch("a.png"), "--csv", in_scratch("a.png")},
       2,
       "evaluate: --sheet and --csv must name different files"},
  };
  for (const Case& each : cases) {
    expect_one_error(use("evaluate", each.arguments), each.exit_code, each.text, each.text);
  }
  std::filesystem::rename(scratch / "photos", scratch / "moved");
  expect_one_error(use("evaluate", {}), 2, "photos does not exist; give a folder with", "moved");
  const ProgramResult moved = use("evaluate", {"--data", in_scratch("moved"), "--split", "train"});
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("classify: moved, train: 16 images, "));
}

TEST_F(EvaluateCommand, RefusesPartsThatTheDataDoesNotHave) {
  train_net("mnist", {"--batch-size", "32"});
  expect_one_error(
      use("evaluate", {"--split", "all"}), 2,
      "--split all is available only for classify, autoencoder, program and packs; use --split "
      "validation or train with mnist",
      "all of mnist");
  expect_one_error(use("evaluate", {"--exif-transpose"}), 2,
                   "--exif-transpose has no effect on mnist", "EXIF of mnist");
  EXPECT_EQ(use("evaluate", {"--split", "train"}).exit_code, 0);
}

}  // namespace
}  // namespace lockstep::testing_support
