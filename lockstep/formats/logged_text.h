// The values of experiment logs as text and as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <lockstep/formats/logged_values.h>

namespace lockstep::formats {

/// How a format spells numbers that are not finite.
struct NumberWords {
  std::string_view not_a_number{};
  std::string_view infinity{};
  std::string_view minus_infinity{};
};

/// Appends the shortest text that converts back to `value`, or one of `words`.
void append_number(std::string& to, double value, const NumberWords& words);

/// Appends `numbers` as a JSON list: "[0.5,1]".
void append_numbers(std::string& to, std::span<const double> numbers, const NumberWords& words);

/// Appends `seconds` with three decimals and a decimal point, whatever the program's locale.
void append_seconds(std::string& to, double seconds);

/// JSON has no literals for numbers that are not finite, so null replaces them.
inline constexpr NumberWords kJsonNumberWords{"null", "null", "null"};

/// The value of `parameter` as JSON.
std::string json_value(const HyperParameter& parameter);
/// {"labels":["cat","dog"],"rows":[[7,1],[2,9]]}, with null for numbers that are not finite.
std::string json_value(const LoggedTable& table);
/// `text` as a JSON string, in quotes, by utf8_text().
std::string json_string(std::string_view text);

/// Returns `text` if it is UTF-8. Otherwise stores its utf8_text() in `replaced` and returns that:
/// readers of protobuf messages reject other bytes, and with them the rest of the file.
std::string_view as_utf8(std::string_view text, std::string& replaced);

/// Whether `letter` is one of the 62 letters and digits of ASCII, whatever the program's locale.
constexpr bool is_ascii_alphanumeric(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= 'a' && letter <= 'z');
}

}  // namespace lockstep::formats
