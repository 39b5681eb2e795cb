// NPY, the format of numpy.save: one array, row-major.
//
// Format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): the bytes
// "\x93NUMPY", the version as two bytes, the length of the header, little-endian, as a u16 (version
// 1) or a u32 (2 and 3), and the header, a literal of Python
//
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// followed by the elements.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <lockstep/formats/safetensors.h>

namespace lockstep::formats {

/// The array in `bytes`, as a view that lives as long as `bytes`; its type has safetensors' name.
/// Throws a DataError that begins with `name` if the header is not as above, the size contradicts
/// the shape, or the elements are not numbers or truth values that safetensors knows, or are in
/// big-endian or column-major order.
TensorView parse_npy(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::formats
