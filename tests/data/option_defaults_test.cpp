// The defaults of the options of data: those of torch.utils.data and torchvision.transforms.
#include <array>
#include <variant>

#include <gtest/gtest.h>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/mix_choice.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/datasets/random_images.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/data/samplers/batch_sampler.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/weighted_sampler.h>

namespace lockstep::testing_support {
namespace {

TEST(DataDefaults, OfOperatorsAreThoseOfTorchvision) {
  using Range = std::array<double, 2>;
  EXPECT_EQ(Pad{}.fill, 0);
  EXPECT_FALSE(Resize{}.shorter_side);
  EXPECT_EQ(RandomResizedCrop{}.scale, (Range{0.08, 1}));
  EXPECT_EQ(RandomResizedCrop{}.ratio, (Range{3.0 / 4, 4.0 / 3}));
  EXPECT_EQ(RandomHorizontalFlip{}.probability, 0.5);
  EXPECT_EQ(RandomVerticalFlip{}.probability, 0.5);
  EXPECT_EQ(RandomRotation{}.degrees, SymmetricRange(0));
  EXPECT_EQ(RandomRotation{}.interpolation, Interpolation::kNearest);
  EXPECT_FALSE(RandomRotation{}.expand);
  EXPECT_EQ(RandomRotation{}.fill, 0);
  EXPECT_EQ(ColorJitter{}.brightness, FactorRange(1, 1));
  EXPECT_EQ(ColorJitter{}.contrast, FactorRange(1, 1));
  EXPECT_EQ(ColorJitter{}.saturation, FactorRange(1, 1));
  EXPECT_EQ(ColorJitter{}.hue, SymmetricRange(0, 0));
  EXPECT_EQ(Grayscale{}.num_output_channels, 1);
  EXPECT_EQ(RandomGrayscale{}.probability, 0.1);
  EXPECT_EQ(RandomErasing{}.probability, 0.5);
  EXPECT_EQ(RandomErasing{}.scale, (Range{0.02, 0.33}));
  EXPECT_EQ(RandomErasing{}.ratio, (Range{0.3, 3.3}));
  EXPECT_EQ(RandomErasing{}.value, 0);
  EXPECT_EQ(MixUp{}.alpha, 1);
  EXPECT_EQ(CutMix{}.alpha, 1);
  EXPECT_EQ(RandomMix{}.cutmix.alpha, 1);
  EXPECT_EQ(RandomMix{}.mixup.alpha, 1);
}

TEST(DataDefaults, OfOperatorsFromOneNumber) {
  EXPECT_EQ(ImageSize(7), ImageSize(7, 7));
  EXPECT_EQ(SymmetricRange(30), SymmetricRange(-30, 30));
  EXPECT_EQ(FactorRange(0.25), FactorRange(0.75, 1.25));
  EXPECT_EQ(FactorRange(1.5), FactorRange(0, 2.5));
}

TEST(DataDefaults, OfLoadersAndSamplersAreThoseOfPyTorch) {
  const LoaderOptions loader{};
  EXPECT_EQ(loader.batch_size, 1);
  EXPECT_EQ(loader.threads, 0);
  EXPECT_EQ(loader.prefetch, 3);
  EXPECT_FALSE(loader.drop_last || loader.channels_last);
  EXPECT_EQ(loader.dtype, torch::kFloat32);
  EXPECT_EQ(loader.seed, 0U);
  EXPECT_EQ(loader.engine, LoaderEngineKind::kNative);
  EXPECT_TRUE(loader.device.is_cpu());
  EXPECT_EQ(loader.on_corrupt_image, OnCorruptImage::kStop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(loader.mix));
  EXPECT_TRUE(loader.cpus.empty());

  const DistributedSamplerOptions distributed{};
  EXPECT_EQ(distributed.rank, 0);
  EXPECT_EQ(distributed.world_size, 1);
  EXPECT_TRUE(distributed.shuffle);
  EXPECT_FALSE(distributed.drop_last);
  EXPECT_EQ(distributed.seed, 0U);
  EXPECT_FALSE(RandomSamplerOptions{}.replacement);
  EXPECT_FALSE(RandomSamplerOptions{}.num_samples);
  EXPECT_TRUE(WeightedRandomSamplerOptions{}.replacement);
  EXPECT_FALSE(WeightedRandomSamplerOptions{}.num_samples);
  EXPECT_EQ(BatchSamplerOptions{}.batch_size, 1);
  EXPECT_FALSE(BatchSamplerOptions{}.drop_last);
}

TEST(DataDefaults, OfFilesReadThemExactlyAndOnce) {
  EXPECT_EQ(ImageFolderOptions{}.decoding, ImageReader::Decoding::kExact);
  EXPECT_EQ(ImageFolderOptions{}.max_image_pixels, 89'478'485) << "Pillow's";
  EXPECT_FALSE(ImageFolderOptions{}.exif_transpose);
  EXPECT_EQ(PackedImagesOptions{}.verification, PackVerification::kFirstRead);
  EXPECT_EQ(PackedImagesOptions{}.decoding, ImageReader::Decoding::kExact);
  EXPECT_EQ(PackedImagesOptions{}.max_image_pixels, 89'478'485);
  EXPECT_FALSE(PackedImagesOptions{}.exif_transpose);
  EXPECT_FALSE(PackedImagesOptions{}.rgb);
  EXPECT_FALSE(PackImagesOptions{}.keep_files);
  EXPECT_FALSE(PackImagesOptions{}.resize);
  EXPECT_EQ(PackImagesOptions{}.on_corrupt_image, OnCorruptImage::kStop);
  EXPECT_EQ(data::RandomImagesOptions{}.shape, (ImageShape{3, 128, 128}));
  EXPECT_EQ(data::RandomImagesOptions{}.num_classes, 1000);
}

}  // namespace
}  // namespace lockstep::testing_support
