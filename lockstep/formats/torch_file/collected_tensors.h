// The tensors and storages in the pickle of a .pt file.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/read_pickle.h>

namespace lockstep::torch_file {

/// The bytes of each storage, by its key.
using StorageBytes = std::map<std::string_view, std::span<const std::byte>, std::less<>>;

struct CollectedTensors {
  std::vector<std::pair<std::string, const PickleTensor*>> tensors{};
  std::map<std::string_view, const PickleStorage*, std::less<>> storages{};  ///< by their keys
};

/// Collects the tensors and storages of `pickle`, which must outlive the result. Throws a
/// CheckpointError that begins with `name` if two tensors get one name, two descriptions of a
/// storage differ, or all names together are longer than 64 times the pickle.
CollectedTensors collect_tensors(const Pickle& pickle, std::string_view name);

/// Bytes of one element of `storage`; 0 for types that Lockstep does not read.
std::size_t element_bytes(const PickleStorage& storage);

/// Returns the tensors as views into `bytes`. Throws a CheckpointError if a type is not supported,
/// a storage lacks bytes or their number differs from its description, a tensor reaches beyond its
/// storage, or tensors that repeat their elements exceed the limits of torch_file.h.
TorchTensors tensors_over(const CollectedTensors& collected, const StorageBytes& bytes,
                          std::string_view name);

}  // namespace lockstep::torch_file
