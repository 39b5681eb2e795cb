#include <lockstep/core/encoding/utf8.h>

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>

namespace lockstep {
namespace {

// What Python's bytes.decode("utf-8", "backslashreplace") gives.
TEST(Utf8Text, SpellsBytesThatAreNone) {
  EXPECT_EQ(utf8_text(""), "");
  EXPECT_EQ(utf8_text("plain \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "plain \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(utf8_text("run\xE9"), "run\\xe9");
  EXPECT_EQ(utf8_text("\xFF\"b\xC3"), "\\xff\"b\\xc3");
  EXPECT_EQ(utf8_text("\xC0\xAF\xE2\x82x"), "\\xc0\\xaf\\xe2\\x82x");  // overlong, cut off
  EXPECT_EQ(utf8_text("\xED\xA0\x80\xF4\x90\x80\x80"), "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(utf8_text(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_NE(utf8_text("caf\xE9"), utf8_text("caf\xE8"));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = utf8_text(std::string(1, static_cast<char>(byte)));
    EXPECT_TRUE(is_utf8(text)) << byte;
    EXPECT_EQ(text.size(), byte < 128 ? 1U : 4U) << byte;
  }
}

// The first and last character of each length, and the bytes just outside.
TEST(Utf8Text, KnowsTheEndsOfEachLength) {
  for (const char* text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xEC\xBF\xBF",
                           "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
                           "\xF3\xBF\xBF\xBF", "\xF4\x8F\xBF\xBF", ""}) {
    EXPECT_TRUE(is_utf8(text)) << utf8_text(text);
    EXPECT_EQ(utf8_text(text), text);
  }
  for (const char* text :
       {"\x80", "\xBF", "\xC1\xBF", "\xC2", "\xC2\x7F", "\xC2\xC0", "\xE0\x9F\xBF", "\xE1\x80",
        "\xE1\x80\x7F", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF1\x80\x80",
        "\xF1\x80\x80\xC0", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "good\xE9"}) {
    EXPECT_FALSE(is_utf8(text)) << utf8_text(text);
    EXPECT_TRUE(is_utf8(utf8_text(text)));
  }
}

TEST(JsonText, TakesStringsOfAnyBytes) {
  const nlohmann::ordered_json json = {{"b", {1, 0.5, nullptr, true, "caf\xE9"}},
                                       {"caf\xE9", "\xC3\xA9"},
                                       {"caf\xE8", {{"x\xFF", 2}}}};
  EXPECT_EQ(json_text(json),
            R"({"b":[1,0.5,null,true,"caf\\xe9"],"caf\\xe9":"é","caf\\xe8":{"x\\xff":2}})");
  const nlohmann::json plain = {{"a", {1, 2}}, {"b", "é"}};
  EXPECT_EQ(json_text(plain), plain.dump());
  EXPECT_EQ(json_text(plain, 2), plain.dump(2));
  const nlohmann::json nested = {{"a", {"\xE9", 1}}};
  EXPECT_EQ(json_text(nested, 1), "{\n \"a\": [\n  \"\\\\xe9\",\n  1\n ]\n}");
  EXPECT_EQ(json_text(nlohmann::json("\xE9")), R"("\\xe9")");
}

}  // namespace
}  // namespace lockstep
