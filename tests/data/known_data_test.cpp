#include <lockstep/data/datasets/known_data.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/data/files/data_source.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

// In an empty folder each loader names the first file that it looks for.
TEST(KnownData, EachNameHasTheLoaderOfItsFiles) {
  const std::map<std::string, const char*> first_files = {{"mnist", "train-labels-idx1-ubyte"},
                                                          {"cifar10", "data_batch_1.bin"},
                                                          {"cifar100", "train.bin"}};
  const TemporaryDirectory empty;
  for (const std::string& name : known_data_names()) {
    ASSERT_TRUE(first_files.contains(name)) << "add the first file of " << name << " to this test";
    EXPECT_THAT(
        message_of<DataError>([&] { data::load_known_data(name, empty.path(), Split::kTrain); }),
        HasSubstr(first_files.at(name)));
  }
  EXPECT_THAT(
      message_of<ConfigError>([&] { data::load_known_data("x", empty.path(), Split::kTest); }),
      HasSubstr("there is no loader of data set 'x'"));
}

}  // namespace
}  // namespace lockstep::testing_support
