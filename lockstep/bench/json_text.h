// The JSON format of the programs' files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

/// Returns `json` as text, indented by two spaces and ending with a newline. Names of files and
/// classes may contain any bytes; invalid UTF-8 becomes U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
