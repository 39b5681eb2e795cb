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
    throw ConfigError(
        str("environment variable ", name, " must be a whole number, got '", *text, "'"));
  }
  return value;
}

bool environment_flag(const char* name) {
  const auto given = environment_string(name);
  if (!given) return false;
  std::string text = *given;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  throw ConfigError(str("environment variable ", name, " must be 1, true, yes or on, or 0, false, ",
                        "no or off, got '", *given, "'"));
}

}  // namespace lockstep
