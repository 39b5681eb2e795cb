// Python's pickle format, read without running anything: plain values, and tensors as torch.save
// describes them.
//
//   const Pickle pickle = read_pickle(bytes, "data.pkl");
//   for (const auto& [key, value] : std::get<PickleDict>(pickle.value->content).items) ...
//
// A pickle is a program for a stack machine that may call any function of Python. This reader knows
// the opcodes of protocol 2 that build plain values, and a list of names that stand for types of
// tensors or for functions whose effect it reproduces itself. It is the list of torch.load with
// weights_only=True, without what a file of weights does not need (sparse and quantized tensors,
// ...). Everything else is refused by its name.
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

namespace lockstep {

struct PickleValue;
/// A value that other values may refer to as well. No value contains itself.
using PickleRef = std::shared_ptr<const PickleValue>;

struct PickleNone {};

struct PickleBytes {
  std::string bytes{};
};

/// Also a torch.Size.
struct PickleTuple {
  std::vector<PickleRef> items{};
};

/// Also a set.
struct PickleList {
  std::vector<PickleRef> items{};
};

/// Also a collections.OrderedDict or Counter. Items stand in their order in Python; the texts and
/// whole numbers among the keys are distinct. Attributes of an OrderedDict are left out.
struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items{};

  /// The value of the text `key`; null where there is none.
  PickleRef find(std::string_view key) const;
};

/// Something of Python that is known by its name, such as the type "torch.float32".
struct PickleName {
  std::string name{};
};

/// A reference to memory that lies outside of the pickle.
struct PickleStorage {
  std::string type{};         ///< "FloatStorage", ..., or "UntypedStorage"
  std::string key{};          ///< names the memory
  std::string location{};     ///< where the memory was when it was written: "cpu", "cuda:0"
  std::int64_t elements = 0;  ///< of the type; of UntypedStorage bytes. Not negative
};

/// A tensor or parameter over a storage. Shape and strides have the same length, at most 64, and
/// are not negative; whether they stay within the storage is not checked.
struct PickleTensor {
  std::shared_ptr<const PickleStorage> storage{};
  std::string dtype{};      ///< "float8_e4m3fn" where the storage is untyped, otherwise empty
  std::int64_t offset = 0;  ///< of the first element, in elements; not negative
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements
};

struct PickleValue {
  std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleBytes, PickleTuple,
               PickleList, PickleDict, PickleName, PickleStorage, PickleTensor>
      content{};
};

struct Pickle {
  PickleRef value{};
  std::size_t bytes = 0;  ///< that the pickle takes at the beginning of what was read
};

/// Containers may be nested as deeply as this.
inline constexpr int kMaximumPickleDepth = 100;
/// A pickle may have as many values as this. Each takes about 200 bytes of memory.
inline constexpr std::size_t kMaximumPickleValues = 2'000'000;

/// The value of the pickle at the beginning of `bytes`. CheckpointError, beginning with `name` and
/// with the place of the byte, for all that is damaged, unknown or larger than the limits above;
/// for a value that contains itself; and for one whose parts, where they are shared, would be more
/// than 16 times the pickle's bytes if they were written out, so that no one who walks over the
/// value can be kept busy for ever by a small file. Texts are UTF-8. Memory is proportional to the
/// bytes.
Pickle read_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep
