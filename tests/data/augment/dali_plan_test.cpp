#include <lockstep/data/augment/dali/plan.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/dali/pipeline.h>
#include <lockstep/data/loader/dali_batch.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Normalize kNormalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}};
constexpr ImageShape kSmall{3, 32, 32};
constexpr ImageShape kOwnSizes{3, 0, 0};

std::string chain(const data::DaliPlan& plan) {
  std::string text;
  for (const data::DaliOperator& op : plan.operators()) {
    text += text.empty() ? op.schema : " " + op.schema;
    for (const auto& [name, value] : op.arguments) {
      if (std::holds_alternative<data::DaliFed>(value)) text += "." + name;
    }
  }
  return text;
}

struct ChainCase {
  const char* name;
  Augmentation operators;
  bool encoded;
  const char* expected;
};

class DaliPlanChain : public ::testing::TestWithParam<ChainCase> {};

// Operators that a single DALI operator can perform are merged, because each DALI operator is a
// pass over the pixels.
TEST_P(DaliPlanChain, IsTheShortest) {
  const ChainCase& test = GetParam();
  const data::DaliPlan plan(test.operators, test.encoded ? kOwnSizes : kSmall,
                            {.encoded = test.encoded});
  EXPECT_EQ(chain(plan), test.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, DaliPlanChain,
    ::testing::Values(
        ChainCase{"Nothing", {kNormalize}, false, "CropMirrorNormalize"},
        ChainCase{"Cifar",
                  {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, kNormalize, Cutout{8}},
                  false,
                  "CropMirrorNormalize.crop_pos_y.crop_pos_x.mirror Erase.anchor.shape"},
        ChainCase{"CropWithoutPad",
                  {RandomCrop{24}, RandomHorizontalFlip{}, kNormalize},
                  false,
                  "CropMirrorNormalize.crop_pos_y.crop_pos_x.mirror"},
        ChainCase{"NoPad",
                  {Pad{0}, CenterCrop{24}, kNormalize},
                  false,
                  "CropMirrorNormalize.crop_pos_y.crop_pos_x"},
        ChainCase{"CenterCropThatPads",
                  {CenterCrop{40}, kNormalize},
                  false,
                  "Slice.start.shape CropMirrorNormalize"},
        ChainCase{"PadAfterCrop",
                  {RandomCrop{24}, Pad{4}, kNormalize},
                  false,
                  "Slice.start.shape Slice.start.shape CropMirrorNormalize"},
        ChainCase{"TwoFills",
                  {CenterCrop{32}, Pad{2}, Pad{2, 9}, kNormalize},
                  false,
                  "Slice.start.shape Slice.start.shape Slice.start.shape CropMirrorNormalize"},
        ChainCase{"OneFill",
                  {RandomHorizontalFlip{}, Pad{2}, RandomHorizontalFlip{}, Pad{2}, kNormalize},
                  false,
                  "Slice.start.shape CropMirrorNormalize.mirror"},
        ChainCase{"VerticalFlip",
                  {RandomCrop{24}, RandomVerticalFlip{}, RandomHorizontalFlip{}, kNormalize},
                  false,
                  "Slice.start.shape Flip.vertical CropMirrorNormalize.mirror"},
        ChainCase{"ErasingBeforeNormalize",
                  {RandomHorizontalFlip{}, Cutout{4}, RandomErasing{}, kNormalize},
                  false,
                  "CropMirrorNormalize.mirror Erase.anchor.shape Erase.anchor.shape"},
        ChainCase{"ErasingBeforeGeometry",
                  {Cutout{4}, RandomCrop{24}, kNormalize},
                  false,
                  "Erase.anchor.shape CropMirrorNormalize.crop_pos_y.crop_pos_x"},
        ChainCase{"FlipBeforeResize",
                  {RandomHorizontalFlip{}, Resize{20}, kNormalize},
                  false,
                  "Flip.horizontal Resize CropMirrorNormalize"},
        ChainCase{"Photos",
                  {RandomResizedCrop{64}, RandomHorizontalFlip{}, kNormalize},
                  true,
                  "decoders__ImageSlice.start.shape Resize CropMirrorNormalize.mirror"},
        ChainCase{"PhotosCropped",
                  {RandomCrop{64}, kNormalize},
                  true,
                  "decoders__ImageSlice.start.shape CropMirrorNormalize"},
        ChainCase{"PhotosPadded",
                  {Pad{4}, RandomCrop{64}, kNormalize},
                  true,
                  "decoders__Image Slice.start.shape CropMirrorNormalize"},
        ChainCase{"PhotosErased",
                  {Cutout{4}, Resize{64}, kNormalize},
                  true,
                  "decoders__Image Erase.anchor.shape Resize CropMirrorNormalize"},
        ChainCase{"Validation",
                  {Resize{72, true}, CenterCrop{64}, kNormalize},
                  true,
                  "decoders__Image Resize.size Slice.start.shape CropMirrorNormalize"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DaliPlan, RefusesByNameWhatDaliCannotDo) {
  const std::vector<std::pair<Operator, std::string>> refused = {
      {RandomRotation{15}, "RandomRotation"},
      {ColorJitter{0.4}, "ColorJitter"},
      {Grayscale{3}, "Grayscale"},
      {RandomGrayscale{}, "RandomGrayscale"}};
  for (const auto& [op, name] : refused) {
    EXPECT_EQ(
        message_of<ConfigError>([&] { data::DaliPlan({op, kNormalize}, kSmall, {}); }),
        "Loader: the dali engine cannot execute " + name + "; set LoaderOptions::engine to native");
  }
  EXPECT_EQ(message_of<ConfigError>(
                [] { data::DaliPlan({kNormalize}, kSmall, {.type = data::PixelType::kBFloat16}); }),
            "Loader: the dali engine cannot make bfloat16 images; use float32 or float16, or "
            "set LoaderOptions::engine to native");
  EXPECT_THAT(
      message_of<ConfigError>([] { data::DaliPlan({RandomCrop{40}, kNormalize}, kSmall, {}); }),
      HasSubstr("does not fit"));
}

// Images of consecutive byte values. An image's label is the byte at its beginning.
ImageDataset small_dataset(std::int64_t count, std::shared_ptr<std::string>& bytes) {
  bytes = std::make_shared<std::string>(pattern(static_cast<std::size_t>(count * 12), 3));
  ImageShard shard;
  shard.images = shard.labels = reinterpret_cast<const std::uint8_t*>(bytes->data());
  shard.image_stride = 12;
  shard.label_stride = 12;
  shard.count = count;
  shard.keep_alive = bytes;
  return ImageDataset("small", {3, 2, 2}, 256, {shard});
}

TEST(DaliBatch, PointsAtPixelsThatLieAsDaliWantsThem) {
  std::shared_ptr<std::string> bytes;
  const ImageDataset dataset = small_dataset(5, bytes);
  data::DaliPlanOptions options = data::dali_input_of(dataset);
  EXPECT_FALSE(options.encoded);
  EXPECT_EQ(options.input_layout, data::Layout::kPlanar);
  const data::DaliPlan plan({RandomCrop{1}, kNormalize}, dataset.shape(), options);
  data::DaliBatch batch;
  const std::vector<SampleKey> keys = {{.seed = 1, .sample = 3}, {.seed = 1, .sample = 0}};
  batch.fill(dataset, keys, plan, options);
  ASSERT_EQ(batch.images().data.size(), 2U);
  EXPECT_EQ(batch.images().data[0], bytes->data() + 36);
  EXPECT_EQ(batch.images().data[1], bytes->data());
  EXPECT_EQ(batch.labels()[0], static_cast<std::uint8_t>((*bytes)[36]));
  // Pixels in the other layout are copied.
  options.input_layout = data::Layout::kChannelsLast;
  batch.fill(dataset, keys, plan, options);
  const auto* pixels = static_cast<const char*>(batch.images().data[0]);
  EXPECT_EQ(pixels[0], (*bytes)[36]);
  EXPECT_EQ(pixels[1], (*bytes)[36 + 4]);
  EXPECT_EQ(pixels[3], (*bytes)[36 + 1]);
  EXPECT_THAT(batch.images().shapes, ::testing::ElementsAre(2, 2, 3, 2, 2, 3));
}

TEST(DaliBatch, PutsTheBorderAroundPixels) {
  std::shared_ptr<std::string> bytes;
  const ImageDataset dataset = small_dataset(5, bytes);
  data::DaliPlanOptions options = data::dali_input_of(dataset);
  for (const data::Layout layout : {data::Layout::kPlanar, data::Layout::kChannelsLast}) {
    options.input_layout = layout;
    const data::DaliPlan plan({Pad{1, 7}, RandomCrop{2}, kNormalize}, dataset.shape(), options);
    data::DaliBatch batch;
    batch.fill(dataset, std::vector<SampleKey>{{.seed = 1, .sample = 3}}, plan, options);
    const auto* pixels = static_cast<const char*>(batch.images().data[0]);
    for (int c = 0; c < 3; ++c) {
      for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 4; ++x) {
          const bool inside = y >= 1 && y <= 2 && x >= 1 && x <= 2;
          const char expected = inside ? (*bytes)[36 + c * 4 + (y - 1) * 2 + x - 1] : char{7};
          EXPECT_EQ(
              pixels[layout == data::Layout::kPlanar ? c * 16 + y * 4 + x : (y * 4 + x) * 3 + c],
              expected);
        }
      }
    }
  }
}

TEST(DaliBatch, ChoicesDependOnSeedEpochImageAndOccurrenceAlone) {
  std::shared_ptr<std::string> bytes;
  const ImageDataset dataset = small_dataset(64, bytes);
  const data::DaliPlanOptions options = data::dali_input_of(dataset);
  const data::DaliPlan plan({RandomHorizontalFlip{}, Pad{9}, RandomCrop{2}, kNormalize},
                            dataset.shape(), options);
  const auto starts = [&](std::vector<std::uint64_t> indices, SampleKey key) {
    std::vector<SampleKey> keys;
    for (const std::uint64_t index : indices) {
      keys.push_back(key);
      keys.back().sample = index;
    }
    data::DaliBatch batch;
    batch.fill(dataset, keys, plan, options);
    std::vector<std::int32_t> values;
    for (const data::DaliNumber& number : batch.numbers().at(0)) values.push_back(number.integer);
    return values;
  };
  const auto one = starts({7, 8}, {.seed = 1, .epoch = 2});
  const auto other = starts({9, 7}, {.seed = 1, .epoch = 2});
  EXPECT_EQ(one[0], other[2]);
  EXPECT_EQ(one[1], other[3]);
  EXPECT_NE(one, starts({7, 8}, {.seed = 1, .epoch = 3}));
  EXPECT_NE(one, starts({7, 8}, {.seed = 2, .epoch = 2}));
  EXPECT_NE(one, starts({7, 8}, {.seed = 1, .epoch = 2, .occurrence = 1}));
}

// Raises the native engine's errors, before any memory is allocated.
TEST(DaliPlan, RefusesImagesOfAnotherShapeAndThoseThatBecomeHuge) {
  struct Case {
    Augmentation operators;
    ImageShape declared;
    ImageShape image;
    const char* message;
  };
  const Case cases[] = {
      {{RandomCrop{32}}, kSmall, {3, 40, 40}, "3x40x40 in a data set of 3x32x32 images (sample 7)"},
      {{RandomCrop{32}}, kOwnSizes, {1, 40, 40}, "1x40x40 in a data set of 3-channel images"},
      {{Resize{256, true}, CenterCrop{224}},
       kOwnSizes,
       {3, 1, 65'000},
       "resizing an image of 1x65000 makes 3x256x16640000, expected at most 65536 pixels a side"},
      {{Pad{20'000}, CenterCrop{8}},
       kOwnSizes,
       {3, 8, 8},
       "padding an image of 8x8 makes 3x40008x40008"},
  };
  for (const Case& c : cases) {
    Augmentation operators = c.operators;
    operators.emplace_back(kNormalize);
    const data::DaliPlan plan(operators, c.declared, {});
    data::DaliNumbers numbers;
    plan.resize(numbers, 1);
    EXPECT_THAT(message_of<DataError>([&] { plan.choose(c.image, {.sample = 7}, 0, numbers); }),
                HasSubstr(c.message));
    if (c.declared.height != 0 || c.image.channels == 1) continue;
    EXPECT_THAT(
        message_of<DataError>([&] { plan.choose(c.image, {.sample = 7}, 0, numbers, "a/b.png"); }),
        HasSubstr(str("a/b.png: ", c.message)));
  }
}

// Without the option, the decoder of a GPU repeats the colours of neighbouring pixels, and its
// images differ from those of a CPU.
TEST(DaliPlan, DecodesAsOnACpu) {
  const Augmentation cropped = {RandomResizedCrop{32}, kNormalize};
  const Augmentation whole = {Resize{72, true}, CenterCrop{64}, kNormalize};
  for (const Augmentation& operators : {cropped, whole}) {
    const data::DaliPlan plan(operators, kOwnSizes, {.encoded = true});
    const data::DaliOperator& decoder = plan.operators().front();
    EXPECT_THAT(decoder.schema, testing::StartsWith("decoders__"));
    const std::map<std::string, data::DaliValue> arguments(decoder.arguments.begin(),
                                                           decoder.arguments.end());
    ASSERT_TRUE(arguments.contains("jpeg_fancy_upsampling")) << decoder.schema;
    EXPECT_TRUE(std::get<bool>(arguments.at("jpeg_fancy_upsampling")));
    EXPECT_FALSE(std::get<bool>(arguments.at("adjust_orientation")));
  }
}

TEST(DaliPipeline, SaysWhatIsMissingAndHowToGetIt) {
  const TemporaryDirectory directory;
  directory.write(data::kDaliModule, "no library");
  ScopedEnvironment environment;
  environment.set("LOCKSTEP_MODULE_DIR", directory.path().string());
  const data::DaliPlan plan({kNormalize}, kSmall, {});
  EXPECT_THAT(
      message_of<ConfigError>([&] { data::DaliPipeline(plan, {}, {}); }),
      AllOf(HasSubstr("Loader: the dali engine needs NVIDIA DALI, which cannot be loaded ("),
            HasSubstr("): run `make dali`, or set LoaderOptions::engine to native")));
}

}  // namespace
}  // namespace lockstep::testing_support
