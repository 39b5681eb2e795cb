// The values of Python's pickles: plain values, and tensors as torch.save describes them.
//
//   if (const auto* dict = std::get_if<PickleDict>(&file.content->content)) {
//     for (const auto& [key, value] : dict->items) ...
//   }
//
// A pickle is a program for a stack machine that may call any Python function. Lockstep's reader
// executes nothing: it knows only the opcodes of protocol 2 that build plain values, and a fixed
// list of names: those of tensor types, and of functions whose effect it reproduces itself. The
// list is that of torch.load with weights_only=True, without the names that a file of weights does
// not need (sparse and quantized tensors, ...). Any other name is rejected with a message that
// states it.
//
// Format: Python's Lib/pickletools.py; names: torch/_utils.py and torch/_weights_only_unpickler.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  std::string type{};      ///< "FloatStorage", ..., or "UntypedStorage"
  std::string key{};       ///< names the memory
  std::string location{};  ///< where the memory was when it was saved: "cpu", "cuda:0"
  std::int64_t elements =
      0;  ///< number of elements of `type`, or bytes for UntypedStorage; not negative
};

/// A tensor or parameter over a storage. Shape and strides have the same length, at most 64, and
/// are not negative. They are not checked against the size of the storage.
struct LOCKSTEP_API PickleTensor {
  std::shared_ptr<const PickleStorage> storage{};
  std::string dtype{};      ///< "float8_e4m3fn" if the storage is untyped, otherwise empty
  std::int64_t offset = 0;  ///< position of the first element, in elements; not negative
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements
};

struct LOCKSTEP_API PickleValue {
  std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleBytes, PickleTuple,
               PickleList, PickleDict, PickleName, PickleStorage, PickleTensor>
      content{};
};

}  // namespace lockstep
