#include <lockstep/data/datasets/cifar100.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Cifar100Dataset, HasFineOrCoarseLabels) {
  const TemporaryDirectory directory;
  const std::string test = cifar100_records(10'000);
  directory.write("plain/test.bin", test);
  directory.write("plain/train.bin", cifar100_records(50'000));
  directory.write("archive/cifar-100-binary/test.bin.gz", gzip(test));
  for (const char* folder : {"plain", "archive"}) {
    const ImageDataset fine = load_cifar100(directory / folder, Split::kTest);
    ASSERT_EQ(fine.size(), 10'000);
    EXPECT_EQ(fine.shape(), (ImageShape{3, 32, 32}));
    EXPECT_EQ(fine.name(), "CIFAR-100 test");
    EXPECT_EQ(fine.num_classes(), 100);
    EXPECT_EQ(fine.label(0), 99);
    EXPECT_EQ(fine.label(9'998), 1);
    EXPECT_EQ(fine.class_names()[99], "worm");
    EXPECT_EQ(fine.image(1).pixels[0], static_cast<std::uint8_t>(test[3074 + 2]));
    const ImageDataset coarse =
        load_cifar100(directory / folder, Split::kTest, Cifar100Labels::kCoarse);
    EXPECT_EQ(coarse.name(), "CIFAR-100 test (coarse labels)");
    EXPECT_EQ(coarse.num_classes(), 20);
    EXPECT_EQ(coarse.label(0), 0);
    EXPECT_EQ(coarse.label(9'999), 19);
    EXPECT_EQ(coarse.class_names()[19], "vehicles_2");
  }
  const ImageDataset train = load_cifar100(directory / "plain", Split::kTrain);
  EXPECT_EQ(train.size(), 50'000);
  EXPECT_EQ(train.name(), "CIFAR-100 train");
}

TEST(Cifar100Dataset, RefusesWhatIsWrong) {
  const std::string right = cifar100_records(10'000);
  std::string coarse = right;
  coarse[3074 * 7] = 20;
  std::string fine = right;
  fine[3074 * 9'999 + 1] = 100;
  struct Case {
    const char* file;
    std::string content;
    const char* message;
  };
  const Case cases[] = {
      {"train.bin", right, "cannot find test.bin"},
      {"test.bin", right + "x", "expected 10000 records of 3074 bytes"},
      {"test.bin", cifar_records(10'000), "got 30730000 bytes, expected 10000 records"},
      {"test.bin", coarse, "record 7 has coarse label 20, expected 0 to 19"},
      {"test.bin", fine, "record 9999 has fine label 100, expected 0 to 99"},
  };
  for (const Case& c : cases) {
    const TemporaryDirectory directory;
    directory.write(c.file, c.content);
    EXPECT_THAT(message_of<DataError>([&] { load_cifar100(directory.path(), Split::kTest); }),
                AllOf(HasSubstr(c.message), HasSubstr(directory.path().string())));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
