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

#include <lockstep/core/export.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// Loads the tensors of a safetensors file or a torch.save file, recognized by content, on the CPU
/// and in file order. Tensors that share memory in a torch.save file share it here.
///
/// Files often hold more than a state dict: loading {"model": state_dict, "epoch": 3} gives the
/// names "model.conv1.weight", ... With a `prefix` of "model.", the result has only the tensors
/// whose names begin with it, and the prefix is removed.
///
/// Never executes code from the file. Throws DataError if the file cannot be read, and
/// CheckpointError, whose message begins with the path, if it is damaged, holds anything but plain
/// values and dense tensors, or has no name that begins with `prefix`. Files without checksums are
/// loaded with a warning in the log.
LOCKSTEP_API StateDict load_state_dict_file(const std::filesystem::path& path,
                                            const std::string& prefix = "");

/// Writes a file in which torch.load(weights_only=True) finds `state` as an OrderedDict. Tensors
/// keep their device; tensors of one type that share memory (tied weights) share it in the file and
/// in Python. Atomic: readers see the old file or the new one. Throws CheckpointError if the file
/// cannot be written, if two tensors have the same name, or if a tensor is not dense or has a type
/// without a name in safetensors, such as complex numbers.
LOCKSTEP_API void save_torch_file(const std::filesystem::path& path, const StateDict& state);

}  // namespace lockstep
