// Parses JSON from untrusted files.
#pragma once

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string_view>

namespace lockstep::formats {

/// What is wrong with a JSON text, as the end of a sentence that names it: "is not valid JSON (line
/// 3, column 7)", "repeats 'dtype'", "is nested too deeply".
class StrictJsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns the value of `text`. Unlike nlohmann::json::parse(), refuses two equal keys in one
/// object, of which it would keep the last, and more than `maximum_depth` nested objects and lists.
nlohmann::json parse_strict_json(std::string_view text, int maximum_depth);

}  // namespace lockstep::formats
