// Text for files whose format demands UTF-8, such as JSON.
//
// Names of files, and of the classes that are folders, may be any bytes on Linux. All our files
// spell bytes that are not UTF-8 in the same way. Names which differ stay different, unless one of
// them is spelled like that itself; load_image_folder() refuses such classes.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The rules are those of Python's decoder: no overlong forms, no surrogates, nothing beyond
/// U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` with "\xe9" in place of each byte that is not part of UTF-8 (here 0xe9), as Python's
/// error handler "backslashreplace" writes it. Text that is UTF-8 is returned as it is, so that one
/// of our files may be read and written again.
std::string utf8_text(std::string_view text);

}  // namespace lockstep
