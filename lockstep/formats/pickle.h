// Reads Python's pickle format without executing anything: plain values, and tensors as torch.save
// describes them.
//
//   const Pickle pickle = read_pickle(bytes, "data.pkl");
//   for (const auto& [key, value] : std::get<PickleDict>(pickle.value->content).items) ...
//
// A pickle is a program for a stack machine that may call any Python function. This reader knows
// only the opcodes of protocol 2 that build plain values, and a fixed list of names: those of
// tensor types, and of functions whose effect it reproduces itself. The list is that of torch.load
// with weights_only=True, without the names that a file of weights does not need (sparse and
// quantized tensors, ...). Any other name is rejected with a message that states it.
//
// Format: Python's Lib/pickletools.py; names: torch/_utils.py and torch/_weights_only_unpickler.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

struct PickleValue;
/// A value that other values may also refer to. No value contains itself.
using PickleRef = std::shared_ptr<const PickleValue>;

struct LOCKSTEP_API PickleNone{};

struct LOCKSTEP_API PickleBytes {
  std::string bytes{};
};

/// A tuple, or a torch.Size.
struct LOCKSTEP_API PickleTuple {
  std::vector<PickleRef> items{};
};

/// A list, or a set.
struct LOCKSTEP_API PickleList {
  std::vector<PickleRef> items{};
};

/// A dict, a collections.OrderedDict or a collections.Counter. Items have their order in Python.
/// The texts and whole numbers among the keys are distinct. Attributes of an OrderedDict are left
/// out.
struct LOCKSTEP_API PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items{};

  /// The value of the text `key`; null if it is missing.
  PickleRef find(std::string_view key) const;
};

/// A Python object that is known by its name, such as the type "torch.float32".
struct LOCKSTEP_API PickleName {
  std::string name{};
};

/// A reference to memory outside of the pickle.
struct LOCKSTEP_API PickleStorage {
  std::string type{};         ///< "FloatStorage", ..., or "UntypedStorage"
  std::string key{};          ///< names the memory
  std::string location{};     ///< where the memory was when it was saved: "cpu", "cuda:0"
  std::int64_t elements = 0;  ///< of `type`, or bytes for UntypedStorage; not negative
};

/// A tensor or parameter over a storage. Shape and strides have the same length, at most 64, and
/// are not negative. They are not checked against the size of the storage.
struct LOCKSTEP_API PickleTensor {
  std::shared_ptr<const PickleStorage> storage{};
  std::string dtype{};      ///< "float8_e4m3fn" if the storage is untyped, otherwise empty
  std::int64_t offset = 0;  ///< of the first element, in elements; not negative
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements
};

struct LOCKSTEP_API PickleValue {
  std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleBytes, PickleTuple,
               PickleList, PickleDict, PickleName, PickleStorage, PickleTensor>
      content{};
};

struct LOCKSTEP_API Pickle {
  PickleRef value{};
  std::size_t bytes = 0;  ///< length of the pickle at the beginning of the input
};

/// The deepest permitted nesting of containers.
inline constexpr int kMaximumPickleDepth = 100;
/// The largest permitted number of values in a pickle. Each takes about 200 bytes of memory.
inline constexpr std::size_t kMaximumPickleValues = 2'000'000;

/// Returns the value of the pickle at the beginning of `bytes`. Throws a CheckpointError that
/// begins with `name` and the position of the byte if the pickle is damaged, has unknown parts,
/// exceeds the limits above, or has a value that contains itself. Also throws it if the pickle
/// would have more than 16 values per byte once all shared parts were written out; this bounds the
/// time to walk over the value of a small malicious file. Texts are UTF-8. Memory is proportional
/// to the bytes.
LOCKSTEP_API Pickle read_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep
