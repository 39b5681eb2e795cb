// Packs for tests: small valid ones, and damaged ones whose checksums are corrected.
#pragma once

#include <string>

#include <lockstep/formats/pack.h>

namespace lockstep::testing_support {

/// `count` records of pixels of 3x4x5, or of growing widths with `own_sizes`.
std::string pixel_pack(int count, bool own_sizes = false, const std::string& name = "pixels");

/// A pack of one JPEG and one PNG file, with names for its three classes.
std::string file_pack();

/// Whether the header's length of the pack is corrected too, so that a cut reaches the checks of
/// the index.
enum class PackLength { kLeftAsItIs, kMadeRight };

/// Returns `pack` with the checksums of header and table corrected, as far as its header allows to
/// find them. Damage that a checksum would have caught then reaches the checks behind it.
std::string with_right_checksums(std::string pack, PackLength length = PackLength::kLeftAsItIs);

}  // namespace lockstep::testing_support
