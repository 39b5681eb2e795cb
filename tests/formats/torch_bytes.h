// Files of torch.save for tests: small valid ones, and pieces from which to build invalid ones.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::testing_support {

/// The opcode for a text of fewer than 256 bytes.
std::string pickled_text(std::string_view text);

/// The pickle that Python writes for a state dict {"a": float32 [2, 3] over storage "0", "b": the
/// transpose of "a"} with attributes.
std::string python_state_pickle();

/// The pickle of one float32 tensor over storage "0" of `elements` elements. The arguments are
/// pickled numbers and tuples.
std::string tensor_pickle(std::string_view elements, std::string_view offset,
                          std::string_view shape, std::string_view strides);

/// The content of a file in the layout of torch.save: the pickle, and the storages by key. Empty
/// records are left out.
struct TorchArchive {
  std::string pickle{};
  std::map<std::string, std::string> storages{};
  std::string version = "3\n";
  std::string byteorder = "little";
  std::string root = "archive/";
};
std::string pack(const TorchArchive& archive);

/// A file of serialize_torch_file(): tensors of several types, two that share a storage, and an
/// empty one.
std::string small_torch_file();

/// The file that torch.save wrote before PyTorch 1.6, with the tensors of python_state_pickle().
std::string legacy_torch_file();

/// Returns `zip` with the CRC-32s of its contents corrected, as far as its directory allows to find
/// them. Damage that a CRC-32 would have caught then reaches the checks behind it.
std::string with_right_crcs(std::string zip);

}  // namespace lockstep::testing_support
