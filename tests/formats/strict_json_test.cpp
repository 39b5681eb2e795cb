#include <lockstep/formats/strict_json.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using formats::parse_strict_json;
using formats::StrictJsonError;

std::string refusal_of_json(const std::string& text, int maximum_depth = 4) {
  return message_of<StrictJsonError>([&] { parse_strict_json(text, maximum_depth); });
}

// What nlohmann::json::parse() accepts without a refusal has the same value here.
TEST(StrictJson, HasTheValueOfThePlainParser) {
  for (const std::string text : {
           "null",
           "true",
           "-5",
           "9223372036854775807",
           "-9223372036854775808",
           "18446744073709551615",
           "0.1",
           "-1e-300",
           "\"text\"",
           R"("\u00e4\n\"\\")",
           "\"\xc3\xa4\"",
           "[]",
           "{}",
           "[1, [2, [3]], {}]",
           R"({"a": 1, "b": {"a": [null, false, "x"], "c": {}}, "": []})",
           R"([{"a": 1}, {"a": 2}])",
           " \n\t{ \"a\" : [ ] }\r\n ",
       }) {
    EXPECT_EQ(parse_strict_json(text, 4), nlohmann::json::parse(text)) << text;
  }
  EXPECT_TRUE(parse_strict_json("3", 0).is_number_unsigned());
  EXPECT_TRUE(parse_strict_json("-3", 0).is_number_integer());
  EXPECT_TRUE(parse_strict_json("3.0", 0).is_number_float());
}

TEST(StrictJson, RefusesEqualKeysOfOneObject) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": 1, "a": 1})", "repeats 'a'"},
      {R"({"a": {}, "b": 2, "a": 1})", "repeats 'a'"},
      {R"({"a": {"b": 1, "b": 2}})", "repeats 'b'"},
      {R"([{"a": [{"": 1, "": 2}]}])", "repeats ''"},
      {R"({"a": 1, "\u0061": 2})", "repeats 'a'"},
      {R"({"a\nb": 1, "a\nb": 2})", "repeats 'a?b'"},
      {R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}], "A": 1})", "nothing was thrown"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refusal_of_json(text), message) << text;
  EXPECT_EQ(
      refusal_of_json("{\"" + std::string(500, 'k') + "\":1,\"" + std::string(500, 'k') + "\":1}"),
      "repeats '" + std::string(80, 'k') + "'");
}

TEST(StrictJson, RefusesDepth) {
  EXPECT_EQ(refusal_of_json("[[[[]]]]"), "nothing was thrown");
  EXPECT_EQ(refusal_of_json("[[[[1, 2], [3]], []]]"), "nothing was thrown");
  EXPECT_EQ(refusal_of_json(R"({"a": {"a": [{"a": 1}]}})"), "nothing was thrown");
  EXPECT_EQ(refusal_of_json("[[[[[]]]]]"), "is nested too deeply");
  EXPECT_EQ(refusal_of_json(R"({"a": {"a": [{"a": []}]}})"), "is nested too deeply");
  EXPECT_EQ(refusal_of_json("1", 0), "nothing was thrown");
  EXPECT_EQ(refusal_of_json("[]", 0), "is nested too deeply");
  EXPECT_EQ(refusal_of_json(std::string(1'000'000, '['), 1000), "is nested too deeply");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal_of_json(objects, 1000), "is nested too deeply");
}

TEST(StrictJson, RefusesOtherTexts) {
  EXPECT_EQ(refusal_of_json(""), "is not valid JSON (line 1, column 1)");
  EXPECT_EQ(refusal_of_json("{"), "is not valid JSON (line 1, column 2)");
  for (const std::string text :
       {" ",        "nul",      "[1,]",    "[1 2]",    "{\"a\"}",  "{\"a\":}",
        "{a: 1}",   "{'a': 1}", "{1: 1}",  "[}",       "{]",       "[] []",
        "{} x",     "01",       "+1",      ".5",       "1.",       "NaN",
        "Infinity", "\"",       "\"\\x\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"",
        "\"a\nb\"", "// 1\n1",  "1e999",   "\xff",     "\xef"}) {
    const std::string message = refusal_of_json(text);
    EXPECT_TRUE(message.starts_with("is not valid JSON (") && message.ends_with(")"))
        << text << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_EQ(refusal_of_json(std::string("{}\0 and more", 12)), "is not valid JSON (byte 2 is NUL)");
}

}  // namespace
}  // namespace lockstep::testing_support
