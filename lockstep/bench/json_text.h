// The JSON format of the programs' files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>

namespace lockstep::bench {

/// Returns `json` as text, indented by two spaces and ending with a newline. Names of files and
/// classes may contain any bytes (utf8_text()).
inline std::string json_text(const nlohmann::ordered_json& json) {
  return lockstep::json_text(json, 2) + "\n";
}

}  // namespace lockstep::bench
