// What the commands that use a trained network compute, compared with its module in eval mode.
#include <lockstep/cli/trained/model_run.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <lockstep/cli/trained/class_scores.h>
#include <lockstep/cli/trained/worst_images.h>
#include <lockstep/core/error.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/recipes/tensor_picture.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kDigits = 21;

// Digits, of which those in `damaged` cannot be read.
class SomeDigits final : public ImageSource {
 public:
  explicit SomeDigits(std::vector<std::int64_t> damaged = {})
      : damaged_(std::move(damaged)), pixels_(kDigits * 28 * 28) {
    for (std::size_t i = 0; i < pixels_.size(); ++i) {
      pixels_[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    }
  }
  std::int64_t size() const override { return kDigits; }
  void read(std::int64_t index, ImageReader& reader) const override {
    for (const std::int64_t each : damaged_) {
      if (each == index) throw DataError(lockstep::str("digit ", index, " is damaged\nand more"));
    }
    reader.show(ImageView::planar(pixels_.data() + index * 28 * 28, {1, 28, 28}));
  }
  std::int64_t label(std::int64_t index) const override { return index % 10; }

 private:
  std::vector<std::int64_t> damaged_;
  std::vector<std::uint8_t> pixels_;
};

ImageDataset some_digits(std::vector<std::int64_t> damaged = {}) {
  return ImageDataset("digits", {1, 28, 28}, 10,
                      std::make_shared<const SomeDigits>(std::move(damaged)));
}

// Writes a checkpoint of MNIST's net with random weights, whose run had batches of 8.
TrainedModel random_model(const testing_support::TemporaryDirectory& scratch) {
  torch::manual_seed(4);
  const std::unique_ptr<Task> task = recipes::find_recipe("mnist").make_task({});
  const std::filesystem::path path = scratch / "net.safetensors";
  save_checkpoint(path, task->module(), {},
                  {.recipe = "mnist",
                   .settings = {{"fused_kernels", "yes"},
                                {"note.batch_size", "8"},
                                {"note.classes", R"(["0","1","2","3","4","5","6","7","8","9"])"},
                                {"note.preparation", "Normalize(mean 0.1307, std 0.3081)"}}});
  return load_trained({.checkpoint = path.string()}, /*is_fused=*/true);
}

struct Computed {
  std::vector<std::int64_t> indices;
  std::vector<torch::Tensor> outputs;
  std::vector<std::int64_t> labels;
  std::vector<double> losses;
  std::vector<CorruptImage> unreadable;
};

Computed computed(const TrainedModel& model, const ImageDataset& digits,
                  const ComputeArguments& arguments) {
  Computed all;
  ModelRun run(model, digits, model.recipe.test_augmentation, arguments, torch::kCPU);
  for (ModelBatch batch; run.next(batch);) {
    for (const double loss : sample_losses(model, batch)) all.losses.push_back(loss);
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      all.indices.push_back(batch.indices[static_cast<std::size_t>(i)]);
      all.outputs.push_back(batch.output[i].clone());
      all.labels.push_back(batch.labels[i].item<std::int64_t>());
    }
  }
  EXPECT_EQ(run.done(), digits.size());
  all.unreadable = run.unreadable();
  return all;
}

TEST(ModelRun, GivesTheOutputsOfTheModuleInEvalMode) {
  const testing_support::TemporaryDirectory scratch;
  const TrainedModel model = random_model(scratch);
  EXPECT_THAT(model.classes, testing::SizeIs(10));
  EXPECT_EQ(model.class_name(3), "3");
  const ImageDataset digits = some_digits();
  for (const int workers : {1, 3}) {
    for (const std::int64_t batch_size : {8, 5}) {
      ComputeArguments arguments{.workers = workers};
      if (batch_size != 8) arguments.batch_size = batch_size;
      const Computed found = computed(model, digits, arguments);
      Loader loader(digits, SequentialSampler(digits.size()), model.recipe.test_augmentation,
                    {.batch_size = batch_size});
      const torch::NoGradGuard no_grad;
      model.task->module().eval();
      std::size_t at = 0;
      for (const Batch& batch : loader) {
        const torch::Tensor output = model.task->forward(model.task->module(), batch.images);
        for (std::int64_t i = 0; i < batch.size; ++i, ++at) {
          ASSERT_LT(at, found.outputs.size());
          EXPECT_EQ(found.indices[at], static_cast<std::int64_t>(at));
          EXPECT_EQ(found.labels[at], static_cast<std::int64_t>(at % 10));
          EXPECT_TRUE(found.outputs[at].equal(output[i])) << "image " << at;
          EXPECT_EQ(found.losses[at], -output[i][batch.labels[i]].item<double>());
        }
      }
      EXPECT_EQ(at, found.outputs.size());
      EXPECT_TRUE(found.unreadable.empty());
    }
  }
}

// The number of images in each batch of a run over the digits.
std::vector<std::int64_t> batches_of(const TrainedModel& model, const ComputeArguments& arguments) {
  std::vector<std::int64_t> sizes;
  ModelRun run(model, some_digits(), model.recipe.test_augmentation, arguments, torch::kCPU);
  for (ModelBatch batch; run.next(batch);) sizes.push_back(batch.size());
  return sizes;
}

TEST(ModelRun, TakesTheBatchesOfTheRun) {
  const testing_support::TemporaryDirectory scratch;
  TrainedModel model = random_model(scratch);
  EXPECT_THAT(batches_of(model, {}), ElementsAre(8, 8, 5));
  EXPECT_THAT(batches_of(model, {.batch_size = 20}), ElementsAre(20, 1)) << "on request";
  for (const std::string text : {"0", "-8", "8x", ""}) {
    model.notes["batch_size"] = text;
    EXPECT_EQ(
        testing_support::message_of<CheckpointError>([&] { batches_of(model, {}); }),
        model.weights + ": its batch_size must be a number of at least 1, got '" + text + "'");
    EXPECT_THAT(batches_of(model, {.batch_size = 30}), ElementsAre(21)) << "is not needed";
  }
  model.notes["batch_size"] = "1";
  EXPECT_EQ(batches_of(model, {}).size(), 21U);
  model.notes.erase("batch_size");
  model.recipe.defaults.global_batch = 11;
  EXPECT_THAT(batches_of(model, {}), ElementsAre(11, 10)) << "the recipe's";
}

TEST(ModelRun, HasTheChecksOfItsOptions) {
  const auto refusal = [](const ComputeArguments& arguments) {
    return testing_support::message_of<ConfigError>([&] { resolve_compute("use", arguments); });
  };
  EXPECT_EQ(refusal({.threads = -1}), "use: --threads must be from 0 to 1024, got -1");
  EXPECT_EQ(refusal({.threads = 1025}), "use: --threads must be from 0 to 1024, got 1025");
  EXPECT_EQ(refusal({.workers = 0}), "use: --workers must be from 1 to 1024, got 0");
  EXPECT_EQ(refusal({.workers = 1025}), "use: --workers must be from 1 to 1024, got 1025");
  EXPECT_EQ(refusal({.batch_size = 0}), "use: --batch-size must be from 1 to 1000000, got 0");
  EXPECT_EQ(refusal({.batch_size = 1000001}),
            "use: --batch-size must be from 1 to 1000000, got 1000001");
  EXPECT_THAT(refusal({.accelerator = "tpu"}), testing::StartsWith("use: --accelerator must be "));
  const int before = at::get_num_threads();
  EXPECT_TRUE(
      resolve_compute("use",
                      {.accelerator = "cpu", .batch_size = 1000000, .threads = 2, .workers = 1024})
          .is_cpu());
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
  if (torch::cuda::device_count() > 0) return;
  EXPECT_TRUE(resolve_compute("use", {.threads = before}).is_cpu());
  EXPECT_EQ(refusal({.accelerator = "cuda"}),
            "use: --accelerator cuda needs a GPU, but this process sees none; use --accelerator "
            "auto or cpu");
}

// A whole batch is damaged, too: images 8 to 15.
TEST(ModelRun, LeavesOutWhatCannotBeRead) {
  const testing_support::TemporaryDirectory scratch;
  const TrainedModel model = random_model(scratch);
  const std::vector<std::int64_t> damaged = {0, 3, 8, 9, 10, 11, 12, 13, 14, 15, 20};
  const Computed all = computed(model, some_digits(), {});
  const Computed rest = computed(model, some_digits(damaged), {.workers = 2});
  EXPECT_THAT(rest.indices, ElementsAre(1, 2, 4, 5, 6, 7, 16, 17, 18, 19));
  for (std::size_t i = 0; i < rest.indices.size(); ++i) {
    const auto index = static_cast<std::size_t>(rest.indices[i]);
    EXPECT_EQ(rest.labels[i], all.labels[index]);
    EXPECT_TRUE(rest.outputs[i].allclose(all.outputs[index], 1e-5, 1e-6)) << index;
  }
  ASSERT_EQ(rest.unreadable.size(), damaged.size());
  for (std::size_t i = 0; i < damaged.size(); ++i) {
    EXPECT_EQ(rest.unreadable[i].index, damaged[i]);
    EXPECT_EQ(rest.unreadable[i].reason, lockstep::str("digit ", damaged[i], " is damaged"));
  }
}

TEST(ClassScores, AreThoseOfTheMatrix) {
  const std::vector<ClassScores> scores = class_scores({.name = "confusion",
                                                        .labels = {"cat", "dog", "owl"},
                                                        .rows = {{2, 1, 0}, {0, 0, 0}, {1, 0, 0}}});
  ASSERT_EQ(scores.size(), 3U);
  EXPECT_EQ(scores[0].name, "cat");
  EXPECT_EQ(scores[0].images, 3);
  EXPECT_EQ(scores[0].predicted, 3);
  EXPECT_EQ(scores[0].correct, 2);
  EXPECT_EQ(scores[0].precision, 2.0 / 3);
  EXPECT_EQ(scores[0].recall, 2.0 / 3);
  EXPECT_EQ(scores[0].f1, 4.0 / 6);
  EXPECT_EQ(scores[1].precision, 0.0);
  EXPECT_FALSE(scores[1].recall) << "there is no dog";
  EXPECT_EQ(scores[1].f1, 0.0);
  EXPECT_FALSE(scores[2].precision) << "no owl was predicted";
  EXPECT_EQ(scores[2].recall, 0.0);
  const ClassScores mean = mean_scores(scores);
  EXPECT_EQ(mean.name, "mean");
  EXPECT_EQ(mean.images, 4);
  EXPECT_EQ(mean.predicted, 4);
  EXPECT_EQ(mean.correct, 2);
  EXPECT_EQ(mean.precision, (2.0 / 3 + 0) / 2);
  EXPECT_EQ(mean.recall, (2.0 / 3 + 0) / 2);
  EXPECT_EQ(mean.f1, (4.0 / 6 + 0 + 0) / 3);
}

TEST(WorstImages, AreThoseWithTheLargestLosses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const torch::Tensor image = torch::zeros({1, 28, 28});
  WorstImages worst(3, /*with_pictures=*/false);
  WorstImages none(0, /*with_pictures=*/true);
  std::int64_t index = 0;
  for (const double loss : {1.0, 5.0, 2.0, nan, 5.0, 0.0}) {
    worst.add({.index = index++, .loss = loss}, image, image);
    none.add({.loss = loss}, image, image);
  }
  std::vector<std::int64_t> found;
  for (const EvaluatedImage& each : worst.images()) found.push_back(each.index);
  EXPECT_THAT(found, ElementsAre(3, 1, 4));
  EXPECT_TRUE(none.images().empty());
}

// Changes the model to an auto-encoder for images of `side` pixels.
void become_autoencoder(TrainedModel& model, std::int64_t side) {
  model.recipe = recipes::find_recipe("autoencoder").choose({.image_size = side});
  std::unique_ptr<Task> task = model.recipe.make_task({});
  model.task.reset(&dynamic_cast<OutputTask&>(*task.release()));
}

report::Picture drawn_picture(const TrainedModel& model, const torch::Tensor& image) {
  return recipes::picture_of(image, std::get<Normalize>(model.recipe.test_augmentation.back()));
}

// The sheet of the worst images, as the command makes it.
std::string drawn_sheet(const TrainedModel& model, const WorstImages& worst,
                        const std::string& dataset, std::int64_t images) {
  report::ContactSheet sheet = worst_sheet(model, dataset, images);
  worst.draw(model, sheet);
  return sheet.png();
}

TEST(TrainedModel, SaysThatItsImagesWerePreparedInAnotherWay) {
  const testing_support::TemporaryDirectory scratch;
  const auto said_of = [&](const std::string& preparation) {
    const std::filesystem::path path = scratch / "other.safetensors";
    save_checkpoint(path, recipes::find_recipe("mnist").make_task({})->module(), {},
                    {.recipe = "mnist",
                     .settings = {{"note.classes", R"(["0","1","2","3","4","5","6","7","8","9"])"},
                                  {"note.preparation", preparation}}});
    testing::internal::CaptureStderr();
    load_trained({.checkpoint = path.string()}, /*is_fused=*/false);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of("Normalize(mean 0.1307, std 0.3081)"), "");
  EXPECT_EQ(said_of("Normalize(mean 0.5, std 0.5)"),
            "note: " + (scratch / "other.safetensors").string() +
                " was trained on images prepared with Normalize(mean 0.5, std 0.5), but this "
                "version prepares them with Normalize(mean 0.1307, std 0.3081)\n");
}

// The layout of a sheet of `images` images of 112 pixels, without what they are.
report::ContactSheetLayout layout_of_digits(const TrainedModel& model, const std::string& words) {
  report::ContactSheetLayout layout{
      .title = "digits",
      .notes = {"images with the largest losses of " + model.weights + words},
      .rows = 2,
      .cell_height = 112,
      .cell_width = 112,
      .caption_lines = 3};
  layout.column_titles.assign(4, "");
  return layout;
}

TEST(WorstImages, HaveAHeading) {
  const testing_support::TemporaryDirectory scratch;
  TrainedModel model = random_model(scratch);
  const report::ContactSheet classified(
      layout_of_digits(model, "; captions: class and prediction"));
  EXPECT_TRUE(worst_sheet(model, "digits", 5).png() == classified.png());
  become_autoencoder(model, 40);
  report::ContactSheetLayout layout = layout_of_digits(model, "");
  layout.column_titles = {"image", "output"};
  layout.cell_height = layout.cell_width = 120;
  layout.caption_lines = 2;
  EXPECT_TRUE(worst_sheet(model, "digits", 2).png() == report::ContactSheet(layout).png());
}

// The caller may reuse the memory of a batch.
TEST(WorstImages, AreDrawnAsTheNetworkSawThem) {
  const testing_support::TemporaryDirectory scratch;
  TrainedModel model = random_model(scratch);
  model.classes[1] = "\u00e4";  // the font lacks it
  WorstImages worst(5, /*with_pictures=*/true);
  report::ContactSheet expected = worst_sheet(model, "digits", 5);
  for (int i = 0; i < 5; ++i) {
    const torch::Tensor image = torch::full({1, 28, 28}, 0.25 * i);
    const torch::Tensor seen = image.clone();
    worst.add({.index = i,
               .file = lockstep::str("photos/cat/", i, ".png"),
               .label = i,
               .predicted = 1,
               .probability = 0.424,
               .loss = 9.0 - i},
              image, torch::zeros({10}));
    image.zero_();
    expected.show(
        i / 4, i % 4, drawn_picture(model, seen),
        {lockstep::str(i, ".png"), i == 1 ? "1: \u00e4" : std::to_string(i), "42% 1: \u00e4"});
  }
  EXPECT_TRUE(drawn_sheet(model, worst, "digits", 5) == expected.png());
}

TEST(WorstImages, OfAnAutoencoderStandBesideItsOutputs) {
  const testing_support::TemporaryDirectory scratch;
  TrainedModel model = random_model(scratch);
  become_autoencoder(model, 40);
  WorstImages worst(2, /*with_pictures=*/true);
  report::ContactSheet expected = worst_sheet(model, "photos", 2);
  for (int i = 0; i < 2; ++i) {
    const torch::Tensor image = torch::full({3, 40, 40}, 0.5);
    const torch::Tensor output = torch::full({3, 40, 40}, 0.25 * (i + 1));
    const torch::Tensor made = output.clone();
    worst.add({.index = i, .loss = 0.5 - 0.25 * i}, image, output);
    output.zero_();
    expected.show(i, 0, drawn_picture(model, image),
                  {lockstep::str('#', i), i == 0 ? "loss 0.5000" : "loss 0.2500"});
    expected.show(i, 1, drawn_picture(model, made), {});
  }
  EXPECT_TRUE(drawn_sheet(model, worst, "photos", 2) == expected.png());
}

// The longer side of an image has at least 96 pixels.
TEST(WorstImages, AreEnlargedUntilTheyAreLargeEnough) {
  const testing_support::TemporaryDirectory scratch;
  TrainedModel model = random_model(scratch);
  struct Case {
    ImageShape image;
    std::int64_t height;
    std::int64_t width;
  };
  const Case cases[] = {{{1, 28, 28}, 112, 112}, {{3, 96, 96}, 96, 96}, {{3, 95, 95}, 190, 190},
                        {{1, 20, 32}, 60, 96},   {{1, 33, 20}, 99, 60}, {{3, 224, 97}, 224, 97}};
  for (const Case& each : cases) {
    model.recipe.input = each.image;
    const report::ContactSheet sheet = worst_sheet(model, "digits", 5);
    report::ContactSheetLayout layout{
        .rows = 2, .cell_height = each.height, .cell_width = each.width, .caption_lines = 3};
    layout.column_titles.assign(4, "");
    const report::ContactSheet expected(std::move(layout));
    EXPECT_EQ(sheet.cell(0, 3).x, expected.cell(0, 3).x) << each.width;
    EXPECT_EQ(sheet.cell(1, 0).y - sheet.cell(0, 0).y,
              expected.cell(1, 0).y - expected.cell(0, 0).y)
        << each.height;
    EXPECT_THROW(sheet.cell(2, 0), InternalError) << "five images have two rows";
  }
}

}  // namespace
}  // namespace lockstep::cli
