// Checks whether a text is UTF-8.
#pragma once

#include <string_view>

namespace lockstep::formats {

/// The rules are those of Python's decoder: no overlong forms, no surrogates, nothing beyond
/// U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace lockstep::formats
