#include <lockstep/core/environment.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include <lockstep/core/error.h>

namespace lockstep {

std::optional<std::string> environment_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> environment_integer(const char* name) {
  const auto text = environment_string(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto result = std::from_chars(text->data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    throw ConfigError(str("environment variable ", name, " must be a whole number, got '", *text, "'"));
  }
  return value;
}

bool environment_flag(const char* name) {
  std::string text = environment_string(name).value_or("");
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

}  // namespace lockstep
