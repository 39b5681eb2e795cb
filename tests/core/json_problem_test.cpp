#include <lockstep/core/json_problem.h>

#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using nlohmann::json;

// The error message for a text that is read as a run's record.
std::string refusal_of(const std::string& text) {
  try {
    const json record = json::parse(text);
    const double number = record.at("epochs").at(0).at("seconds").get<double>();
    return std::to_string(number + std::stod(record.at("text").get<std::string>()));
  } catch (const json::exception& error) {
    return json_refusal("run.json", "is no record", error);
  } catch (const std::logic_error& error) {
    return json_refusal("run.json", "is no record", error);
  }
}

TEST(JsonProblem, SaysWhereATextIsNoJson) {
  EXPECT_EQ(refusal_of("{"), "run.json is not JSON: line 1, column 2");
  EXPECT_EQ(refusal_of("{\"epochs\": [1,\n  2,,]}"), "run.json is not JSON: line 2, column 5");
  EXPECT_EQ(refusal_of(""), "run.json is not JSON: line 1, column 1");
  EXPECT_EQ(refusal_of("\xff\xfe"), "run.json is not JSON: line 1, column 1");
}

TEST(JsonProblem, SaysInPlainWordsWhatIsMissing) {
  EXPECT_EQ(refusal_of("{}"), "run.json is no record: 'epochs' is missing");
  EXPECT_EQ(refusal_of("[]"), "run.json is no record: expected object, got array");
  EXPECT_EQ(refusal_of("null"), "run.json is no record: expected object or array, got null");
  EXPECT_EQ(refusal_of(R"({"epochs": {}})"), "run.json is no record: expected array, got object");
  EXPECT_EQ(refusal_of(R"({"epochs": []})"), "run.json is no record: a list is too short");
  EXPECT_EQ(refusal_of(R"({"epochs": [{"seconds": "2"}]})"),
            "run.json is no record: expected number, got string");
  EXPECT_EQ(refusal_of(R"({"epochs": [{"seconds": 2}], "text": "x"})"),
            "run.json is no record: a number cannot be read");
}

TEST(JsonProblem, LeavesOtherTextsAsTheyAre) {
  EXPECT_EQ(json_refusal("a.json", "is no record", std::runtime_error("it has no steps")),
            "a.json is no record: it has no steps");
  for (const char* function : {"stod", "stoi", "stol"}) {
    EXPECT_EQ(json_problem(std::invalid_argument(function)), "a number cannot be read");
  }
  EXPECT_EQ(json_problem(std::runtime_error("stop")), "stop");
  // Texts of the library that lack a part of what others of their kind have.
  const std::pair<const char*, const char*> cases[] = {
      {"[json.exception.", "[json.exception."},
      {"[json.exception.type_error.302] type must be number", "type must be number"},
      {"[json.exception.out_of_range.403] key 'a' was not found", "key 'a' was not found"},
      {"[json.exception.parse_error.101] parse error at line 1", "parse error at line 1"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_EQ(json_problem(std::runtime_error(text)), problem);
  }
}

}  // namespace
}  // namespace lockstep
