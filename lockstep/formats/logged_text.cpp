#include <lockstep/formats/logged_text.h>

#include <array>
#include <charconv>
#include <cmath>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/encoding/utf8.h>

namespace lockstep::formats {

void append_number(std::string& to, double value, const NumberWords& words) {
  if (!std::isfinite(value)) {
    to += std::isnan(value) ? words.not_a_number
          : value > 0       ? words.infinity
                            : words.minus_infinity;
    return;
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  to.append(text.data(), end);
}

void append_numbers(std::string& to, std::span<const double> numbers, const NumberWords& words) {
  to += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) to += ',';
    append_number(to, numbers[i], words);
  }
  to += ']';
}

void append_seconds(std::string& to, double seconds) {
  std::array<char, 400> text{};  // the largest double has 309 digits
  const auto end = std::to_chars(text.data(), text.data() + text.size(), seconds,
                                 std::chars_format::fixed, /*precision=*/3)
                       .ptr;
  to.append(text.data(), end);
}

std::string json_value(const HyperParameter& parameter) {
  return std::visit([](const auto& value) { return json_text(nlohmann::json(value)); },
                    parameter.value);
}

std::string json_value(const LoggedTable& table) {
  std::string json = "{\"labels\":[";
  const char* before = "";
  for (const std::string& label : table.labels) {
    json.append(before).append(json_string(label));
    before = ",";
  }
  json += "],\"rows\":[";
  before = "";
  for (const std::vector<double>& row : table.rows) {
    json += before;
    append_numbers(json, row, kJsonNumberWords);
    before = ",";
  }
  return json + "]}";
}

std::string json_string(std::string_view text) { return json_text(nlohmann::json(text)); }

std::string_view as_utf8(std::string_view text, std::string& replaced) {
  if (is_utf8(text)) return text;
  replaced = utf8_text(text);
  return replaced;
}

}  // namespace lockstep::formats
