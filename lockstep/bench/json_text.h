// JSON as the programs write it to files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep {

/// Indented by two, with a newline. Names of files and classes are any bytes; JSON is UTF-8, so
/// what is not becomes U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
