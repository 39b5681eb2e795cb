#include <lockstep/data/datasets/cifar10.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

std::string batch_name(int number) { return "data_batch_" + std::to_string(number) + ".bin"; }

// Five batches and a test batch of 10,000 records each. The first pixel of a batch is its number.
void write_batches(const TemporaryDirectory& directory, const std::string& folder) {
  std::string records = cifar_records(10'000);
  for (int number = 1; number <= 6; ++number) {
    records[1] = static_cast<char>(number);
    directory.write(folder + (number == 6 ? "test_batch.bin" : batch_name(number)), records);
  }
}

TEST(Cifar10Dataset, SplitsAreTheRightFiles) {
  const TemporaryDirectory directory;
  write_batches(directory, "plain/");
  write_batches(directory, "archive/cifar-10-batches-bin/");
  struct Case {
    Split split;
    const char* name;
    std::vector<int> batches;
  };
  const Case cases[] = {{Split::kTrain, "CIFAR-10 train", {1, 2, 3, 4, 5}},
                        {Split::kTest, "CIFAR-10 test", {6}}};
  for (const char* folder : {"plain", "archive"}) {
    for (const Case& c : cases) {
      const ImageDataset dataset = load_cifar10(directory / folder, c.split);
      ASSERT_EQ(dataset.size(), static_cast<std::int64_t>(c.batches.size()) * 10'000);
      EXPECT_EQ(dataset.shape(), (ImageShape{3, 32, 32}));
      EXPECT_EQ(dataset.name(), c.name);
      EXPECT_THAT(dataset.class_names(),
                  ::testing::ElementsAre("airplane", "automobile", "bird", "cat", "deer", "dog",
                                         "frog", "horse", "ship", "truck"));
      for (std::size_t i = 0; i < c.batches.size(); ++i) {
        const auto first = static_cast<std::int64_t>(i) * 10'000;
        EXPECT_EQ(dataset.image(first).pixels[0], c.batches[i]);
        EXPECT_EQ(dataset.label(first + 9'999), 9);
      }
    }
  }
}

TEST(Cifar10Dataset, RefusesWhatIsWrong) {
  const std::string right = cifar_records(10'000);
  std::string label = right;
  label[3073 * 9'999] = 77;
  struct Case {
    const char* file;
    std::string content;
    const char* message;
  };
  const Case cases[] = {
      {"data_batch_5.bin", right, "cannot find test_batch.bin"},
      {"test_batch.bin", right.substr(0, right.size() - 1),
       "got 30729999 bytes, expected 10000 records"},
      {"test_batch.bin", right + "x", "got 30730001 bytes, expected 10000 records"},
      {"test_batch.bin", cifar_records(1017), "got 3125241 bytes, expected 10000 records"},
      {"test_batch.bin", label, "record 9999 has label 77"},
      {"test_batch.bin.gz", gzip(right).substr(0, 5000), "test_batch.bin.gz"},
      {"test_batch.bin.gz", gzip(std::string(100'000'000, '\0')),
       "would unpack to 100000000 bytes"},
  };
  for (const Case& c : cases) {
    const TemporaryDirectory directory;
    directory.write(c.file, c.content);
    EXPECT_THAT(message_of<DataError>([&] { load_cifar10(directory.path(), Split::kTest); }),
                ::testing::AllOf(HasSubstr(c.message), HasSubstr(directory.path().string())));
  }
}

// The check before a training reads the sizes of the files alone, which take no space here.
TEST(Cifar10Dataset, ChecksTheSizesOfItsFiles) {
  const TemporaryDirectory directory;
  const auto check = [&](Split split) {
    return message_of<DataError>([&] { check_cifar10(directory.path(), split); });
  };
  const auto write = [&](const std::string& name, std::uintmax_t bytes) {
    directory.write("cifar-10-batches-bin/" + name, "");
    std::filesystem::resize_file(directory / ("cifar-10-batches-bin/" + name), bytes);
  };
  constexpr std::uintmax_t kRight = 30'730'000;
  for (int number = 1; number <= 4; ++number) write(batch_name(number), kRight);
  EXPECT_THAT(check(Split::kTrain), HasSubstr("cannot find data_batch_5.bin"));
  write(batch_name(5), kRight);
  EXPECT_EQ(check(Split::kTrain), "nothing was thrown");
  EXPECT_THAT(check(Split::kTest), HasSubstr("cannot find test_batch.bin"));
  for (const std::uintmax_t bytes : {kRight - 1, kRight + 1}) {
    write("test_batch.bin", bytes);
    EXPECT_EQ(check(Split::kTest),
              (directory / "cifar-10-batches-bin/test_batch.bin").string() + ": holds " +
                  std::to_string(bytes) +
                  " bytes, expected 30730000 of 10000 records; it is truncated or another's");
  }
  write("test_batch.bin", kRight);
  EXPECT_EQ(check(Split::kTest), "nothing was thrown");
}

TEST(Cifar10Dataset, TheRealOne) {
  LOCKSTEP_SKIP_WITHOUT("cifar10");
  const ImageDataset dataset = load_cifar10(*real_data("cifar10"), Split::kTrain);
  ASSERT_EQ(dataset.size(), 50'000);
  const int first_labels[] = {6, 9, 9, 4, 1};  // frog, truck, truck, deer, automobile
  for (int i = 0; i < 5; ++i) EXPECT_EQ(dataset.label(i), first_labels[i]);
  std::vector<int> counts(10);
  for (std::int64_t i = 0; i < dataset.size(); ++i) ++counts[dataset.label(i)];
  EXPECT_THAT(counts, ::testing::Each(5'000));
}

}  // namespace
}  // namespace lockstep::testing_support
