#include <lockstep/core/options.h>

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

TEST(OptionCheck, AcceptsAndRejects) {
  const OptionCheck check("Thing");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    std::function<void()> run;
    std::string message;  // empty if accepted
  };
  const Case cases[] = {
      {[&] { check.at_least("n", 1, 1); }, ""},
      {[&] { check.at_least("n", 0, 1); }, "Thing: n must be at least 1, got 0"},
      {[&] { check.at_least("n", nan, 1); }, "Thing: n must be at least 1, got nan"},
      {[&] { check.at_least("x", 0.25, 0.5); }, "Thing: x must be at least 0.5, got 0.25"},
      {[&] { check.at_least("x", -999999999999999, 0); },
       "Thing: x must be at least 0, got -999999999999999"},
      {[&] { check.at_least("x", -1e15, 0); }, "Thing: x must be at least 0, got -1e+15"},
      {[&] { check.at_least("x", -infinity, 0); }, "Thing: x must be at least 0, got -inf"},
      {[&] { check.positive("lr", -0.5); }, "Thing: lr must be greater than 0, got -0.5"},
      {[&] { check.positive("lr", 0.1); }, ""},
      {[&] { check.positive("lr", 0); }, "Thing: lr must be greater than 0, got 0"},
      {[&] { check.positive("lr", infinity); }, "Thing: lr must be greater than 0, got inf"},
      {[&] { check.positive("lr", nan); }, "Thing: lr must be greater than 0, got nan"},
      {[&] { check.in_range("p", 1, 0, 1); }, ""},
      {[&] { check.in_range("p", 0, 0, 1); }, ""},
      {[&] { check.in_range("p", -0.5, 0, 1); }, "Thing: p must be from 0 to 1, got -0.5"},
      {[&] { check.in_range("p", 1.5, 0, 1); }, "Thing: p must be from 0 to 1, got 1.5"},
      {[&] { check.in_range("n", 1 << 25, 1, 1 << 24); },
       "Thing: n must be from 1 to 16777216, got 33554432"},
      {[&] { check.in_range("p", nan, 0, 1); }, "Thing: p must be from 0 to 1, got nan"},
      {[&] { check.one_of("s", "a", {"a", "b"}); }, ""},
      {[&] { check.one_of("s", "c", {"a", "b"}); }, "Thing: s must be one of a, b, got 'c'"},
      {[&] { check.one_of("s", "addam", {"adam", "sgd"}); },
       "Thing: s must be one of adam, sgd, got 'addam'; did you mean 'adam'?"},
  };
  for (const Case& c : cases) {
    std::string message;
    try {
      c.run();
    } catch (const ConfigError& error) {
      message = error.what();
    }
    EXPECT_EQ(message, c.message);
  }
}

TEST(NamedValues, FindsValuesByNameAndNamesByValue) {
  const detail::NamedValues<int> all = {{"two", 2}, {"one", 1}};
  EXPECT_EQ(all.names(), (std::vector<std::string>{"two", "one"}));
  for (const std::string& name : all.names()) {
    EXPECT_EQ(all.name_of(all.value_of("Thing", "size", name)), name);
  }
  EXPECT_EQ(all.value_of("Thing", "size", "one"), 1);
  EXPECT_THROW(all.name_of(3), InternalError);
  try {
    all.value_of("Thing", "size", "tow");
    FAIL() << "an unknown name was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "Thing: size must be one of two, one, got 'tow'; did you mean 'two'?");
  }
}

}  // namespace
}  // namespace lockstep
