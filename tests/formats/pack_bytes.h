// Packs for tests: small right ones, and ones whose checksums are made right again after damage.
#pragma once

#include <string>

#include <lockstep/formats/pack.h>

namespace lockstep::testing_support {

/// `count` records of pixels of 3x4x5, or with `own_sizes` of growing widths.
std::string pixel_pack(int count, bool own_sizes = false, const std::string& name = "pixels");

/// One JPEG and one PNG file, with names for its three classes.
std::string file_pack();

/// Whether the header also tells the pack's length, so that a cut meets the index's checks.
enum class PackLength { kLeftAsItIs, kMadeRight };

/// `pack` with checksums of header and table that fit what they cover, where its header allows to
/// find them: so that what a checksum would have caught meets the checks behind it.
std::string with_right_checksums(std::string pack, PackLength length = PackLength::kLeftAsItIs);

}  // namespace lockstep::testing_support
