// State dicts in files that Python reads and writes: safetensors, and .pt or .pth of torch.save.
//
//   load_state_dict(*net, load_state_dict_file("resnet18.pth"));
//   save_torch_file("net.pt", state_dict(*net));
//
// and in Python
//
//   net.load_state_dict(torch.load("net.pt", weights_only=True))
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// The tensors of a safetensors file or one of torch.save, told apart by their content; on the CPU,
/// in their order in the file. Those that share memory in a file of torch.save share it here.
///
/// Files often hold more than one state dict: {"model": state_dict, "epoch": 3} gives the names
/// "model.conv1.weight", ... With a `prefix` of "model." the result has only the tensors whose
/// names begin with it, under the rest of their names.
///
/// Never runs what is in a file. DataError when the file cannot be read; CheckpointError, which
/// begins with the path, when it is damaged, holds anything but plain values and dense tensors, or
/// has no name that begins with `prefix`. Files without checksums are loaded with a warning in the
/// log.
StateDict load_state_dict_file(const std::filesystem::path& path, const std::string& prefix = "");

/// Writes a file in which torch.load(weights_only=True) finds an OrderedDict of `state`. Tensors
/// are stored as they are on their device; those that share memory and have one type (tied weights)
/// share it in the file and in Python. Readers see the old file or the new one. CheckpointError
/// when the file cannot be written, two tensors have one name, or one is not dense or of a type
/// without a name in safetensors, such as complex numbers.
void save_torch_file(const std::filesystem::path& path, const StateDict& state);

}  // namespace lockstep
