#include <lockstep/core/json_problem.h>

#include <optional>
#include <string_view>

#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

// An exception of nlohmann::json begins with "[json.exception.KIND.NUMBER] ".
constexpr std::string_view kLibrary = "[json.exception.";
constexpr std::string_view kSyntax = "parse error at ";

std::string_view without_library(std::string_view text) {
  const auto end = text.starts_with(kLibrary) ? text.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? text : text.substr(end + 2);
}

// The text between `before` and `after` in `text`; nothing if one of them is missing. An empty
// `after` is the end of the text.
std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after) {
  const auto begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  if (after.empty()) return text;
  const auto end = text.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

bool is_syntax_error(std::string_view text) {
  return text.starts_with(kLibrary) && without_library(text).starts_with(kSyntax);
}

// The container type that was expected instead of `type`.
const char* container_other_than(std::string_view type) {
  if (type == "array") return "object";
  return type == "object" ? "array" : "object or array";
}

}  // namespace

std::string json_problem(const std::exception& error) {
  const std::string_view text = error.what();
  if (text == "stod" || text == "stoi" || text == "stol") return "a number cannot be read";
  if (!text.starts_with(kLibrary)) return std::string(text);
  const std::string_view plain = without_library(text);
  if (is_syntax_error(text)) return std::string(between(plain, kSyntax, ":").value_or(plain));
  const auto key = between(plain, "key '", "' not found");
  if (key) return str("'", *key, "' is missing");
  const auto wanted = between(plain, "type must be ", ", but is ");
  if (wanted) return str("expected ", *wanted, ", got ", *between(plain, ", but is ", ""));
  const auto got = plain.starts_with("cannot use ") ? between(plain, " with ", "") : std::nullopt;
  if (got) return str("expected ", container_other_than(*got), ", got ", *got);
  if (plain.starts_with("array index ")) return "a list is too short";
  return std::string(plain);
}

std::string json_refusal(const std::string& file, const std::string& expected,
                         const std::exception& error) {
  const bool is_syntax = is_syntax_error(error.what());
  return str(file, ' ', is_syntax ? "is not JSON" : expected, ": ", json_problem(error));
}

}  // namespace lockstep
