// The orientation of a photograph: how its camera was held.
#pragma once

#include <cstddef>
#include <span>

#include <lockstep/core/export.h>

namespace lockstep::detail {

/// The value of EXIF's Orientation of a JPEG or PNG file, 1 to 8: from the segment APP1 or the
/// chunk eXIf, else from XMP in APP1. 1, "as it is", if the file has none, or one that Pillow does
/// not accept. Reads only the parts before a JPEG's pixels, and the headers of a PNG's chunks.
LOCKSTEP_API int exif_orientation(std::span<const std::byte> file);

}  // namespace lockstep::detail
