// The file format of torch.save before PyTorch 1.6. Later versions write it with
// _use_new_zipfile_serialization=False.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <lockstep/formats/torch_file.h>

namespace lockstep::torch_file {

/// Whether `bytes` begins with the magic number of such a file.
bool is_legacy(std::span<const std::byte> bytes);

/// Parses five pickles: the magic number, the protocol's version, facts about the machine, the
/// content, and the keys of the storages. After them comes each storage, in the order of the keys,
/// as a 64-bit number of elements and the elements. Throws a CheckpointError as parse_torch_file()
/// does.
TorchFile parse_legacy(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::torch_file
