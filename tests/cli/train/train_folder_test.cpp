// `lockstep train classify` and `train autoencoder` on any folder of images, from the start to a
// trained model.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <lockstep/formats/png.h>
#include <tests/cli/train_command.h>
#include <tests/export/onnx_reader.h>
#include <tests/support/colour_folder.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainFolder : public TrainCommand {
 protected:
  void write_photos(const std::string& name, int count, int classes) {
    write_colours(scratch, name, count, classes);
  }
  // Writes images of random pixels, each with a different size.
  void write_noise(const std::string& name, int count, int classes) {
    std::mt19937 random(5);
    for (int number = 0; number < count; ++number) {
      const int width = 50 + 3 * number;
      const int height = 90 - 2 * number;
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height * 3));
      for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
      scratch.write(lockstep::str(name, "/class", number % classes, "/", number, ".png"),
                    detail::encode_png(pixels, width, height));
    }
  }
  ProgramResult train_folder(const std::string& recipe, const std::string& folder,
                             const std::vector<std::string>& more) const {
    std::vector<std::string> words = {recipe, "--data", in_scratch(folder)};
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  }
  ProgramResult export_to(const std::string& name, const std::string& run,
                          const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {
        LOCKSTEP_PROGRAM, "export",         in_scratch(run + "/checkpoint.safetensors"),
        "--onnx",         in_scratch(name), "--dynamic-batch"};
    words.insert(words.end(), more.begin(), more.end());
    return run_forked(words);
  }
  nlohmann::json record(const std::string& name) const {
    return nlohmann::json::parse(read_text(scratch / name));
  }
};

struct Sheet {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> pixels;
};

Sheet read_sheet(const std::filesystem::path& path) {
  const std::string file = read_text(path);
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(std::as_bytes(std::span(file)), path.string());
  Sheet sheet{header.width, header.height, {}};
  sheet.pixels.resize(static_cast<std::size_t>(sheet.width) *
                      static_cast<std::size_t>(sheet.height) * 3);
  decoder.decode({0, 0, sheet.height, sheet.width}, sheet.pixels);
  return sheet;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents")) files.push_back(entry.path());
  }
  return files;
}

// Names of folders are any bytes, whereas the files of a run have to be UTF-8.
TEST_F(TrainFolder, KeepsPathsAndClassesThatAreNoText) {
  for (int number = 0; number < 16; ++number) {
    const std::vector<std::uint8_t> grey(std::size_t{32} * 32 * 3,
                                         static_cast<std::uint8_t>(10 * number));
    scratch.write(
        lockstep::str("photos\xE9/", number % 2 == 0 ? "caf\xE9/" : "caf\xE8/", number, ".png"),
        detail::encode_png(grey, 32, 32));
  }
  const std::vector<std::string> options = {"--image-size",  "64",
                                            "--batch-size",  "4",
                                            "--threads",     "1",
                                            "--model",       "resnet18",
                                            "--accelerator", "cpu",
                                            "--logger",      "csv,jsonl,tensorboard",
                                            "--out",         in_scratch("run\xE9"),
                                            "--json",        in_scratch("run.json"),
                                            "--trace"};
  std::vector<std::string> words = options;
  words.insert(words.end(), {"--max-epochs", "1"});
  const ProgramResult first = train_folder("classify", "photos\xE9", words);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  words = options;
  words.insert(words.begin(), {"classify", "--data", in_scratch("photos\xE9")});
  words.insert(words.end(), {"--max-epochs", "2", "--resume"});
  const ProgramResult second = execute(words);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("dataset"))) << "the settings are those of the checkpoint";
  for (const char* name : {"run\xE9/run.json", "run.json"}) {
    const nlohmann::json run = record(name);
    EXPECT_THAT(run["resumed_from"].get<std::string>(), HasSubstr("run\\xe9/"));
    EXPECT_TRUE(run["validation"].contains("accuracy"));
  }
  EXPECT_EQ(record("run\xE9/run.json")["epochs"].size(), 2U);
  EXPECT_THAT(record("run\xE9/run.json")["command"].get<std::string>(), HasSubstr("photos\\xe9"));
  const ProgramResult report = run_forked(
      {LOCKSTEP_PROGRAM, "report", in_scratch("run\xE9"), "--out", in_scratch("\xE9.html")});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(read_text(scratch / "\xE9.html"), HasSubstr("<title>Lockstep: run\\xe9</title>"));
}

TEST_F(TrainFolder, TheAutoencoderOnTwoRanks) {
  write_photos("photos", 30, 2);
  const std::vector<std::string> options = {"--nproc-per-node",
                                            "2",
                                            "--image-size",
                                            "40",
                                            "--batch-size",
                                            "8",
                                            "--threads",
                                            "1",
                                            "--out",
                                            in_scratch("run"),
                                            "--json",
                                            in_scratch("run.json"),
                                            "--logger",
                                            "csv,tensorboard",
                                            "--log-dir",
                                            in_scratch("logs")};
  std::vector<std::string> first = options;
  first.insert(first.end(), {"--max-epochs", "2"});
  const ProgramResult result = train_folder("autoencoder", "photos", first);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("note: all 30 images stay in memory"),
                                HasSubstr("note: split by seed 0: 24 images to train on, 6 to")));
  const nlohmann::json run = record("run.json");
  EXPECT_EQ(run["recipe_options"]["image_size"], "40");
  EXPECT_FALSE(run["provenance"].contains("image_size")) << "it is among the recipe's options";
  EXPECT_EQ(run["provenance"]["split"],
            "random with seed 0, validation fraction 0.2, 24 training images");
  EXPECT_EQ(run["steps_per_epoch"], 3);
  ASSERT_EQ(run["epochs"].size(), 2U);
  EXPECT_LT(run["epochs"][1]["train_loss"], run["epochs"][0]["train_loss"]);
  EXPECT_TRUE(run["validation"].contains("psnr"));

  // Rank 0 evaluates 3 of the 6 images. Each input has one colour, as it was written.
  const Sheet sheet = read_sheet(scratch / "run" / "reconstructions.png");
  EXPECT_EQ(sheet.width, 3 * 40 + 2 * 4);
  EXPECT_EQ(sheet.height, 2 * 40 + 4);
  for (int i = 0; i < 3; ++i) {
    const auto pixel = [&](int x, int y) {
      return &sheet.pixels[static_cast<std::size_t>(3 * (y * sheet.width + i * 44 + x))];
    };
    const int number = (pixel(0, 0)[0] - 3) / 5;
    EXPECT_EQ(pixel(0, 0)[0], red_of(number));
    for (const auto& [x, y] : {std::pair{0, 0}, {39, 0}, {20, 20}, {39, 39}}) {
      EXPECT_EQ(pixel(x, y)[0], red_of(number));
      EXPECT_EQ(pixel(x, y)[1], 100);
      EXPECT_EQ(pixel(x, y)[2], 200 - number);
    }
  }
  const auto events = event_files(scratch / "logs");
  ASSERT_EQ(events.size(), 1U);
  const std::string log = read_text(events[0]);
  std::size_t pictures = 0;
  for (auto at = log.find("\x89PNG"); at != std::string::npos; at = log.find("\x89PNG", at + 1)) {
    ++pictures;
  }
  EXPECT_EQ(pictures, 2U) << "one for each epoch";
  EXPECT_THAT(log, HasSubstr("images/reconstructions"));

  std::vector<std::string> more = options;
  more.insert(more.end(), {"--max-epochs", "3", "--resume"});
  const ProgramResult resumed = train_folder("autoencoder", "photos", more);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, Not(HasSubstr("does not repeat")));
  EXPECT_EQ(record("run.json")["epochs"][0]["epoch"], 3);

  const ProgramResult exported = export_to("net.onnx", "run");
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("input [batch, 3, 40, 40]"));
  const ReadModel model = read_model(scratch / "net.onnx");
  EXPECT_EQ(model.sizes.at("output"), "batch,3,40,40");
  EXPECT_TRUE(model.initializers.contains("decoder.2.weight"));
}

// Without learning, the mean loss over all images does not depend on their order, but it would if
// some were trained on twice and others not at all.
TEST_F(TrainFolder, RanksTrainOnDifferentImages) {
  write_photos("photos", 30, 2);
  std::vector<double> losses;
  for (const char* ranks : {"1", "2"}) {
    const ProgramResult result = train_folder("autoencoder", "photos",
                                              {"--nproc-per-node",
                                               ranks,
                                               "--image-size",
                                               "20",
                                               "--batch-size",
                                               "8",
                                               "--threads",
                                               "1",
                                               "--workers",
                                               "0",
                                               "--max-epochs",
                                               "1",
                                               "--lr",
                                               "0",
                                               "--limit-val-batches",
                                               "0",
                                               "--accelerator",
                                               "cpu",
                                               "--json",
                                               in_scratch("run.json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(record("run.json")["world_size"], ranks[0] - '0');
    losses.push_back(record("run.json")["epochs"][0]["train_loss"].get<double>());
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
}

// Whether images come from the ranks' shared cache or from their files must not change the weights.
// 40 kB hold some of the images.
TEST_F(TrainFolder, TheCacheChangesNothing) {
  write_noise("photos", 16, 2);
  for (const auto& [recipe, side] : {std::pair("autoencoder", "40"), {"classify", "64"}}) {
    std::vector<std::string> weights;
    for (const char* cache : {"none", "40kB", "1GB"}) {
      const std::string run = lockstep::str(recipe, "-", cache);
      const ProgramResult result = train_folder(
          recipe, "photos",
          {"--nproc-per-node", "2", "--image-size", side, "--batch-size", "4", "--threads", "1",
           "--max-epochs", "2", "--cache", cache, "--out", in_scratch(run)});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      weights.push_back(read_text(scratch / run / "checkpoint.safetensors"));
      ASSERT_GT(weights.back().size(), 10'000U) << run;
    }
    EXPECT_TRUE(weights[1] == weights[0]) << recipe << " with some images in memory";
    EXPECT_TRUE(weights[2] == weights[0]) << recipe << " with all images in memory";
  }
}

// A split by other rules would validate on images that the run has trained on.
TEST_F(TrainFolder, ResumesOnTheSameSplitOnly) {
  write_photos("photos", 10, 2);
  const auto resume = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--image-size", "40", "--batch-size", "4",
                                      "--threads",    "1",  "--out",        in_scratch("run")};
    words.insert(words.end(), more.begin(), more.end());
    return train_folder("autoencoder", "photos", words);
  };
  ASSERT_EQ(resume({"--max-epochs", "1"}).exit_code, 0);
  const ProgramResult same = resume({"--max-epochs", "2", "--resume"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("does not repeat")));
  const auto expect_refused = [&](const std::vector<std::string>& more, const char* what) {
    std::vector<std::string> words = {"--max-epochs", "3", "--resume"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult refused = resume(words);
    EXPECT_NE(refused.exit_code, 0) << what;
    EXPECT_EQ(refused.error_lines(), 1) << what << "\n" << refused.err;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("was trained with another split of the samples"),
                      HasSubstr("as before (--data, --seed and --val-fraction), or begin")))
        << what;
  };
  expect_refused({"--val-fraction", "0.5"}, "another fraction");
  expect_refused({"--seed", "1"}, "another seed");
  std::filesystem::rename(scratch / "photos/class0/000.png", scratch / "photos/class0/zzz.png");
  expect_refused({}, "another order of the files");
}

TEST_F(TrainFolder, SaysOfWhichNetworkTheCheckpointIs) {
  write_photos("photos", 6, 2);
  const auto resume = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--image-size", "64", "--batch-size", "4",
                                      "--threads",    "1",  "--out",        in_scratch("run")};
    words.insert(words.end(), more.begin(), more.end());
    return train_folder("classify", "photos", words);
  };
  const ProgramResult first = resume({"--max-epochs", "1"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const ProgramResult other = resume({"--max-epochs", "2", "--resume", "--model", "resnet34"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.error_lines(), 1) << other.err;
  EXPECT_THAT(other.err, HasSubstr("was trained with model resnet18 (now resnet34); give the same "
                                   "--model as before ("));
}

// The library names ImageDecoderOptions::max_image_pixels, the program its flag: in the error line,
// in the record and in warnings.
TEST_F(TrainFolder, NamesTheFlagThatAllowsALargeImage) {
  for (const char* part : {"train", "val"})
    write_colours(scratch, lockstep::str("photos/", part), 6, 2);
  scratch.write("photos/train/class1/large.png",
                detail::encode_png(std::vector<std::uint8_t>(80 * 80 * 3, 9), 80, 80));
  const std::string advice = "6400 pixels, at most 6399 are allowed; raise --max-image-pixels";
  const std::vector<std::string> options = {
      "--image-size", "64",   "--batch-size",  "2",   "--max-epochs",       "1",   "--threads", "1",
      "--cache",      "none", "--accelerator", "cpu", "--max-image-pixels", "6399"};
  std::vector<std::string> words = options;
  words.insert(words.end(), {"--out", in_scratch("run")});
  expect_one_error(train_folder("classify", "photos", words), 1, advice + "\n", "an error");
  EXPECT_THAT(record("run/run.json")["error"].get<std::string>(), EndsWith(advice));
  words = options;
  words.insert(words.end(), {"--on-corrupt-image", "skip"});
  const ProgramResult skipping = train_folder("classify", "photos", words);
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_THAT(skipping.err, AllOf(HasSubstr("warning: skipped image"), HasSubstr(advice)));
}

TEST_F(TrainFolder, SkipsAFormatThatIsNotReadOnRequest) {
  write_photos("photos", 12, 2);
  scratch.write("photos/class0/photo.webp", std::string("RIFF\4\0\0\0WEBP", 12));
  std::vector<std::string> words = {"--image-size",  "64",  "--batch-size", "4",
                                    "--max-epochs",  "1",   "--threads",    "1",
                                    "--accelerator", "cpu", "--cache",      "none"};
  expect_one_error(train_folder("classify", "photos", words), 1,
                   "out of the folder, or skip it with --on-corrupt-image skip\n", "stops");
  words.insert(words.end(), {"--on-corrupt-image", "skip", "--json", in_scratch("run.json")});
  const ProgramResult result = train_folder("classify", "photos", words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("photo.webp: is a WebP image"));
  EXPECT_GE(record("run.json")["skipped_images"], 1);
}

TEST_F(TrainFolder, AClassifierAndItsWeightsForOtherClasses) {
  write_photos("photos", 12, 2);
  const std::vector<std::string> small = {"--image-size", "64", "--batch-size", "4",
                                          "--max-epochs", "1",  "--threads",    "1"};
  std::vector<std::string> first = small;
  first.insert(first.end(), {"--nproc-per-node", "2", "--out", in_scratch("two"), "--json",
                             in_scratch("two.json")});
  const ProgramResult trained = train_folder("classify", "photos", first);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(record("two.json")["recipe_options"]["model"], "resnet18");
  EXPECT_FALSE(std::filesystem::exists(scratch / "two" / "reconstructions.png"));

  const ProgramResult exported = export_to("net.onnx", "two");
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const ReadModel model = read_model(scratch / "net.onnx");
  EXPECT_EQ(model.sizes.at("input"), "batch,3,64,64");
  EXPECT_EQ(model.sizes.at("output"), "batch,2");
  EXPECT_THAT(model.operators, Not(::testing::Contains("BatchNormalization"))) << "folded";
  ASSERT_EQ(export_to("unfolded.onnx", "two", {"--no-fold-batch-norm"}).exit_code, 0);
  EXPECT_THAT(read_model(scratch / "unfolded.onnx").operators,
              ::testing::Contains("BatchNormalization"));

  // With another number of classes, the last layer is initialised anew, and the program reports it.
  // Folders that are already split are used as they are.
  write_colours(scratch, "split/train", 9, 3);
  write_colours(scratch, "split/val", 3, 3, /*first=*/20);
  const std::string weights = in_scratch("two/checkpoint.safetensors");
  std::vector<std::string> other = small;
  other.insert(other.end(), {"--weights", weights, "--json", in_scratch("three.json")});
  const ProgramResult three = train_folder("classify", "split", other);
  ASSERT_EQ(three.exit_code, 0) << three.err;
  EXPECT_THAT(three.err, AllOf(HasSubstr("note: only 9 images to train on, too few "),
                               HasSubstr("note: fc "), HasSubstr(weights),
                               HasSubstr("fc.weight, fc.bias keep their initial values\n")));
  EXPECT_EQ(record("three.json")["steps_per_epoch"], 3);
  EXPECT_EQ(record("three.json")["weights"], weights);
  std::vector<std::string> same = small;
  same.insert(same.end(), {"--weights", weights});
  EXPECT_THAT(train_folder("classify", "photos", same).err, Not(HasSubstr("initial")));
}

TEST_F(TrainFolder, SaysInOneLineWhatIsWrong) {
  write_photos("photos", 10, 2);
  write_photos("one", 4, 1);
  std::filesystem::create_directory(scratch / "empty");
  scratch.write("bad.safetensors", "no weights");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    std::string text;
  };
  const std::string photos = in_scratch("photos");
  const std::vector<Case> cases = {
      {{"autoencoder"}, 2, "autoencoder: give --data DIR"},
      {{"autoencoder", "--data", in_scratch("empty")}, 1, "empty: has no subfolders"},
      {{"autoencoder", "--data", in_scratch("nowhere")},
       2,
       "nowhere does not exist; give a folder"},
      {{"classify", "--data", in_scratch("one")}, 1, "has one class, 'class0'"},
      {{"autoencoder", "--data", photos, "--image-size", "170"},
       2,
       "must be a multiple of 20, which the net pools to one pixel, got 170; use 160 or 180"},
      {{"classify", "--data", photos, "--model", "vgg16"},
       2,
       "the model must be one of resnet18, resnet34, resnet50, got 'vgg16'"},
      {{"autoencoder", "--data", photos, "--model", "resnet18"},
       2,
       "train: --model has no effect on autoencoder; it belongs to classify"},
      {{"mnist", "--image-size", "64"},
       2,
       "train: --image-size has no effect on mnist; it belongs to classify, autoencoder and "
       "program"},
      {{"mnist", "--val-fraction", "0.5"}, 2, "train: --val-fraction has no effect on mnist"},
      {{"classify", "--data", photos, "--val-fraction", "2"},
       2,
       "--val-fraction must be from 0 to 1, got 2"},
      {{"classify", "--data", photos, "--val-fraction", "0"},
       2,
       "each part needs at least 1 image"},
      {{"classify", "--data", photos, "--cache", "0"},
       2,
       "train: --cache must be a size such as 2GB, up to 1TiB, or none, got '0'"},
      {{"classify", "--data", photos, "--cache", "1GB", "--loader", "dali"},
       2,
       "train: --cache belongs to --loader native, got --loader dali"},
      {{"classify", "--data", photos, "--weights", in_scratch("none.pth")},
       2,
       "none.pth does not exist"},
      {{"classify", "--data", photos, "--weights", in_scratch("bad.safetensors")},
       1,
       "bad.safetensors"},
  };
  for (const Case& each : cases) {
    const ProgramResult result = train(each.arguments);
    EXPECT_EQ(result.exit_code, each.exit_code) << each.text << "\n" << result.err;
    EXPECT_EQ(result.error_lines(), 1) << each.text << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(each.text));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
