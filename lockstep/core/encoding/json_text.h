// JSON as text, whatever bytes its strings have.
#pragma once

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/utf8.h>

namespace lockstep {

/// `json` with utf8_text() of all its strings and names.
template <class Json>
Json json_in_utf8(const Json& json) {
  if (json.is_string()) return utf8_text(json.template get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json result = json.is_array() ? Json::array() : Json::object();
  if (json.is_array()) {
    for (const Json& each : json) result.push_back(json_in_utf8(each));
  } else {
    for (const auto& [name, value] : json.items()) result[utf8_text(name)] = json_in_utf8(value);
  }
  return result;
}

/// `json` as text, in one line or indented by `indent` blanks. nlohmann's dump() throws if a string
/// is not UTF-8; here such strings are written as utf8_text().
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  try {
    return json.dump(indent);
  } catch (const typename Json::type_error&) {
    return json_in_utf8(json).dump(indent);
  }
}

}  // namespace lockstep
