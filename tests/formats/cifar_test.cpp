#include <lockstep/formats/cifar.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

TEST(Cifar10, ReadsRecords) {
  const std::string file = cifar_records(11);
  const formats::CifarRecords records = formats::parse_cifar10(as_bytes(file), 11, "x");
  EXPECT_EQ(records.count, 11);
  EXPECT_EQ(records.records[10 * formats::kCifarRecordBytes], 0);
  EXPECT_EQ(records.records[9 * formats::kCifarRecordBytes], 9);
}

TEST(Cifar10, RefusesWhatIsWrong) {
  const std::string right = cifar_records(3);
  std::string label = right;
  label[2 * formats::kCifarRecordBytes] = 10;
  struct Case {
    std::string file;
    const char* message;
  };
  const Case cases[] = {
      {"", "got 0 bytes, expected 3 records"},
      {right.substr(0, right.size() - 1),
       "got 9218 bytes, expected 3 records of 3073 bytes (9219)"},
      {right + "x", "got 9220 bytes"},
      {cifar_records(4), "got 12292 bytes"},
      {label,
       "x: record 2 has label 10, expected 0 to 9: the file is damaged or not CIFAR-10's binary "
       "version"},
  };
  for (const Case& c : cases) {
    try {
      formats::parse_cifar10(as_bytes(c.file), 3, "x");
      ADD_FAILURE() << "accepted what should say: " << c.message;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::StartsWith("x: "), ::testing::HasSubstr(c.message)));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
