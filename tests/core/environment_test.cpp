#include <lockstep/core/environment.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

constexpr const char* kName = "LOCKSTEP_TEST_VARIABLE";

class Environment : public ::testing::Test {
 protected:
  ~Environment() override { unsetenv(kName); }
};

TEST_F(Environment, UnsetAndEmptyAreNothing) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    if (value != nullptr) setenv(kName, value, 1);
    EXPECT_EQ(environment_string(kName), std::nullopt);
    EXPECT_EQ(environment_integer(kName), std::nullopt);
    EXPECT_FALSE(environment_flag(kName));
  }
}

TEST_F(Environment, WholeNumbers) {
  for (const auto& [text, value] : {std::pair{"0", 0}, {"42", 42}, {"-7", -7}}) {
    setenv(kName, text, 1);
    EXPECT_EQ(environment_integer(kName), value);
  }
  for (const std::int64_t value : {std::int64_t{1} << 32, std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min()}) {
    setenv(kName, std::to_string(value).c_str(), 1);
    EXPECT_EQ(environment_integer(kName), value);
  }
  for (const char* text : {"four", "4x", " 4", "4 ", "4.0", "+4", "-", "0x10",
                           "9223372036854775808", "99999999999999999999"}) {
    setenv(kName, text, 1);
    try {
      environment_integer(kName);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr(kName), ::testing::HasSubstr(text)));
    }
  }
}

TEST_F(Environment, Flags) {
  for (const auto& [text, value] : {std::pair{"1", true},
                                    {"TRUE", true},
                                    {"Yes", true},
                                    {"on", true},
                                    {"0", false},
                                    {"no", false},
                                    {"False", false},
                                    {"off", false}}) {
    setenv(kName, text, 1);
    EXPECT_EQ(environment_flag(kName), value) << text;
  }
  for (const char* text : {"ture", "2", "detail", " 1"}) {
    setenv(kName, text, 1);
    EXPECT_THAT(testing_support::message_of<ConfigError>([] { environment_flag(kName); }),
                ::testing::AllOf(
                    ::testing::HasSubstr(kName),
                    ::testing::EndsWith(lockstep::str(
                        " must be 1, true, yes or on, or 0, false, no or off, got '", text, "'"))));
  }
}

}  // namespace
}  // namespace lockstep
