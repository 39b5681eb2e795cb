// Whether a text is UTF-8.
#pragma once

#include <string_view>

namespace lockstep::torch_file {

/// As Python decodes it: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace lockstep::torch_file
