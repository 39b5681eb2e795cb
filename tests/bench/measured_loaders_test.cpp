// The loaders that `lockstep bench loader` measures. No test depends on the speed of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/bench/loader/measured_loaders.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/formats/png.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::bench {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing_support::read_text;
using testing_support::TemporaryDirectory;

// Two rounds of some milliseconds.
BenchLoaderSettings digits() {
  return {.dataset = make_synthetic_digits(Split::kTest, {.count = 50}),
          .augmentation = {Normalize{{0.1307}, {0.3081}}},
          .threads = {2, 0},
          .batch_size = 8,
          .rounds = 2,
          .seconds = 0.004};
}

TEST(MeasureLoaders, GivesARowForEachEngineAndNumberOfThreads) {
  const std::vector<BenchLoaderRow> rows = measure_loaders(digits());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].threads, 2);
  EXPECT_EQ(rows[1].threads, 0);
  for (const BenchLoaderRow& row : rows) {
    EXPECT_EQ(row.engine, LoaderEngineKind::kNative);
    EXPECT_THAT(row.rounds, SizeIs(2));
    EXPECT_THAT(row.rounds, Each(Gt(0)));
    EXPECT_THAT(row.floors, SizeIs(2));
    EXPECT_THAT(row.floors, Each(Gt(0)));
    EXPECT_EQ(row.skipped, 0);
  }
}

TEST(MeasureLoaders, TracesEachRow) {
  const TemporaryDirectory folder;
  BenchLoaderSettings settings = digits();
  settings.dtype = torch::kBFloat16;
  settings.channels_last = true;
  settings.trace = folder.path();
  measure_loaders(settings);
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"native-0-threads.json", "native-2-threads.json"}));
  EXPECT_THAT(read_text(folder / "native-2-threads.json"), HasSubstr("wait for data"));
}

// Decoding is no copy, so files have no bound. Damaged ones are left out if the settings say so.
TEST(MeasureLoaders, CountsDamagedFiles) {
  const TemporaryDirectory folder;
  for (const std::string name : {"cats/1.png", "dogs/2.png"}) {
    folder.write(name, detail::encode_png(std::vector<std::uint8_t>(20 * 24 * 3, 9), 20, 24));
  }
  BenchLoaderSettings settings = {
      .dataset = load_image_folder(folder.path()),
      .augmentation = {RandomResizedCrop{8}, Normalize{{0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}}},
      .threads = {0},
      .batch_size = 2,
      .rounds = 1,
      .seconds = 0.004};
  EXPECT_THAT(measure_loaders(settings).at(0).floors, IsEmpty());
  folder.write("cats/1.png", "damaged");
  EXPECT_THROW(measure_loaders(settings), Error);
  settings.on_corrupt_image = OnCorruptImage::kSkip;
  EXPECT_GT(measure_loaders(settings).at(0).skipped, 0);
}

}  // namespace
}  // namespace lockstep::bench
