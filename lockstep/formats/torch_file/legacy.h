// The files of torch.save before PyTorch 1.6, and of _use_new_zipfile_serialization=False since.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::torch_file {

/// Whether `bytes` begins with the magic number of such a file.
bool is_legacy(std::span<const std::byte> bytes);

/// Five pickles: the magic number, the protocol's version, facts of the machine, the content, and
/// the keys of the storages; then each storage, in the order of the keys, as a 64-bit number of
/// elements and the elements. CheckpointError as of parse_torch_file().
TorchFile parse_legacy(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::torch_file
