// Stricter checks of options than CLI11's, and options that are lists.
#pragma once

#include <charconv>
#include <initializer_list>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>

#include <CLI/CLI.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep::cli {

/// Requires a decimal number that fits into Integer. CLI11 alone reads 010 as eight and
/// 99999999999999999999 as the largest number there is.
template <class Integer>
CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        Integer value{};
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end) {
          return str("must be a whole number", std::is_unsigned_v<Integer> ? " of at least 0" : "",
                     ", got '", text, "'",
                     error == std::errc::result_out_of_range ? ", which does not fit" : "");
        }
        text = std::to_string(value);
        return "";
      },
      "");
}

/// Rejects an empty argument, which CLI11 treats as missing.
inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); }, "");
}

/// Declares options that are lists, separated by commas, whose parts may also be given one by one:
/// "--logger csv --logger jsonl" is "--logger csv,jsonl". Of other options, the last value counts
/// (run_program()).
inline void collect_values(CLI::App& command, std::initializer_list<const char*> options) {
  for (const char* const option : options) {
    const auto all = std::make_shared<std::string>();
    command.get_option(option)->transform(CLI::Validator(
        [all](std::string& text) {
          if (text.empty()) return std::string();  // refused by not_empty()
          *all += (all->empty() ? "" : ",") + text;
          text = *all;
          return std::string();
        },
        ""));
  }
}

}  // namespace lockstep::cli
