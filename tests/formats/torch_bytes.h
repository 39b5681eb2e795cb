// Files of torch.save for tests: small right ones, and pieces of them to be made wrong.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::testing_support {

/// The opcode of a text of fewer than 256 bytes.
std::string pickled_text(std::string_view text);

/// A state dict {"a": float32 [2, 3] over storage "0", "b": the transposed of it} with attributes,
/// in the opcodes that Python writes for it.
std::string python_state_pickle();

/// The pickle of one float32 tensor over storage "0" of `elements`, with pickled numbers and
/// tuples.
std::string tensor_pickle(std::string_view elements, std::string_view offset,
                          std::string_view shape, std::string_view strides);

/// A file with that pickle and those storages by key, as torch.save packs it. Empty records are
/// left out.
struct TorchArchive {
  std::string pickle{};
  std::map<std::string, std::string> storages{};
  std::string version = "3\n";
  std::string byteorder = "little";
  std::string root = "archive/";
};
std::string pack(const TorchArchive& archive);

/// A file of serialize_torch_file(): tensors of several types, two over one storage, an empty one.
std::string small_torch_file();

/// The file that torch.save wrote before PyTorch 1.6, with python_state_pickle()'s tensors.
std::string legacy_torch_file();

/// `zip` with CRC-32s that fit its contents, where its directory allows to find them: so that what
/// a checksum would have caught meets the checks behind it.
std::string with_right_crcs(std::string zip);

}  // namespace lockstep::testing_support
