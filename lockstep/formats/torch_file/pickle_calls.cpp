#include <lockstep/formats/torch_file/pickle_calls.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::torch_file {
namespace {

constexpr std::size_t kMaximumDimensions = 64;  // the limit of PyTorch's own kernels

// Names that are values themselves, not the results of calls.
constexpr std::array<std::string_view, 12> kStorages = {
    "FloatStorage", "DoubleStorage", "HalfStorage",         "BFloat16Storage",
    "LongStorage",  "IntStorage",    "ShortStorage",        "CharStorage",
    "ByteStorage",  "BoolStorage",   "ComplexFloatStorage", "ComplexDoubleStorage"};
constexpr std::array<std::string_view, 20> kTypes = {
    "float32",         "float64",         "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "int64",   "int32",    "int16",         "int8",
    "uint64",          "uint32",          "uint16",  "uint8",    "bool",          "complex32",
    "complex64",       "complex128"};
constexpr std::string_view kTorch = "torch.";
constexpr std::string_view kUntypedStorage = "torch.storage.UntypedStorage";

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Arguments {
 public:
  Arguments(std::string_view function, const PickleNode& arguments, const PicklePlace& place)
      : function_(function), place_(place) {
    const auto* tuple = std::get_if<PickleTuple>(&arguments.content);
    if (tuple == nullptr) fail("gets ", kind_of(arguments), ", expected a tuple of arguments");
    items_ = &tuple->items;
  }

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    place_.fail(function_, ' ', values...);
  }

  void expect_count(std::size_t least, std::size_t most) const {
    if (items_->size() >= least && items_->size() <= most) return;
    fail("gets ", amount_of(static_cast<std::int64_t>(items_->size()), "argument"), ", expected ",
         least, least == most ? "" : str(" to ", most));
  }
  std::size_t count() const { return items_->size(); }

  const PickleRef& operator[](std::size_t index) const { return (*items_)[index]; }

  template <class Value>
  const Value& get(std::size_t index, const char* expected) const {
    const auto* value = std::get_if<Value>(&(*items_)[index]->content);
    if (value == nullptr) {
      fail("gets ", kind_of(*(*items_)[index]), " as argument ", index + 1, ", expected ",
           expected);
    }
    return *value;
  }

  std::int64_t natural(std::size_t index, const char* expected) const {
    const auto value = get<std::int64_t>(index, expected);
    if (value < 0) fail("gets ", value, " as argument ", index + 1, ", expected ", expected);
    return value;
  }

  std::vector<std::int64_t> naturals(std::size_t index, const char* expected) const {
    const auto& tuple = get<PickleTuple>(index, expected);
    if (tuple.items.size() > kMaximumDimensions) {
      fail("gets ", tuple.items.size(), " numbers as argument ", index + 1, ", expected at most ",
           kMaximumDimensions);
    }
    std::vector<std::int64_t> result;
    for (const PickleRef& item : tuple.items) {
      const auto* value = std::get_if<std::int64_t>(&item->content);
      if (value == nullptr || *value < 0) {
        fail("gets ", value != nullptr ? str(*value) : std::string(kind_of(*item)), " in argument ",
             index + 1, ", expected ", expected);
      }
      result.push_back(*value);
    }
    return result;
  }

  // A dictionary of hooks or of bits such as "conj". Unknown entries are not supported, so it must
  // be empty.
  void expect_empty(std::size_t index, const char* what) const {
    const auto* dict = std::get_if<PickleDict>(&(*items_)[index]->content);
    const bool empty = (dict != nullptr && dict->items.empty()) ||
                       std::holds_alternative<PickleNone>((*items_)[index]->content);
    if (!empty) fail("gets ", what, ", which Lockstep does not read");
  }

 private:
  std::string_view function_;
  const PicklePlace& place_;
  const std::vector<PickleRef>* items_ = nullptr;
};

PickleNodeRef fresh(decltype(PickleValue::content) content) {
  auto node = std::make_shared<PickleNode>();
  node->content = std::move(content);
  return node;
}

// Precondition: the arguments of a call are nodes of the reader.
PickleNodeRef node_of(const PickleRef& value) {
  return std::const_pointer_cast<PickleNode>(std::static_pointer_cast<const PickleNode>(value));
}

PickleNodeRef call_ordered_dict(const Arguments& arguments) {
  arguments.expect_count(0, 0);
  PickleNodeRef dict = fresh(PickleDict{});
  dict->is_ordered_dict = true;
  return dict;
}

PickleTensor tensor_of(const Arguments& arguments) {
  const auto& storage = arguments.get<PickleStorage>(0, "a storage");
  PickleTensor tensor;
  tensor.storage = std::shared_ptr<const PickleStorage>(arguments[0], &storage);
  tensor.offset = arguments.natural(1, "an offset from 0");
  tensor.shape = arguments.naturals(2, "a tuple of sizes from 0");
  tensor.strides = arguments.naturals(3, "a tuple of strides from 0");
  if (tensor.shape.size() != tensor.strides.size()) {
    arguments.fail("gets ", tensor.shape.size(), " sizes and ", tensor.strides.size(), " strides");
  }
  return tensor;
}

// For torch 0.3 and earlier.
PickleNodeRef call_rebuild_tensor(const Arguments& arguments) {
  arguments.expect_count(4, 4);
  return fresh(tensor_of(arguments));
}

PickleNodeRef call_rebuild_tensor_v2(const Arguments& arguments) {
  arguments.expect_count(6, 7);
  arguments.get<bool>(4, "whether it requires gradients");
  arguments.expect_empty(5, "hooks");
  if (arguments.count() > 6) arguments.expect_empty(6, "metadata");
  return fresh(tensor_of(arguments));
}

// For the types that have no storage class of their own.
PickleNodeRef call_rebuild_tensor_v3(const Arguments& arguments) {
  arguments.expect_count(7, 8);
  arguments.get<bool>(4, "whether it requires gradients");
  arguments.expect_empty(5, "hooks");
  if (arguments.count() > 7) arguments.expect_empty(7, "metadata");
  const std::string_view type = arguments.get<PickleName>(6, "a type").name;
  if (!type.starts_with(kTorch) || !contains(kTypes, type.substr(kTorch.size()))) {
    arguments.fail("gets ", type, " as argument 7, expected a type");
  }
  PickleTensor tensor = tensor_of(arguments);
  tensor.dtype = type.substr(kTorch.size());
  return fresh(std::move(tensor));
}

// Returns the tensor itself: the other attributes of a parameter do not affect its values.
PickleNodeRef call_rebuild_parameter(const Arguments& arguments) {
  arguments.expect_count(3, 4);
  arguments.get<PickleTensor>(0, "a tensor");
  arguments.get<bool>(1, "whether it requires gradients");
  arguments.expect_empty(2, "hooks");
  return node_of(arguments[0]);
}

PickleNodeRef call_size(const Arguments& arguments) {
  arguments.expect_count(1, 1);
  arguments.get<PickleTuple>(0, "a tuple");
  return node_of(arguments[0]);
}

PickleNodeRef call_set(const Arguments& arguments) {
  arguments.expect_count(1, 1);
  arguments.get<PickleList>(0, "a list");
  return node_of(arguments[0]);
}

PickleNodeRef call_counter(const Arguments& arguments) {
  arguments.expect_count(1, 1);
  arguments.get<PickleDict>(0, "a dictionary");
  return node_of(arguments[0]);
}

PickleNodeRef call_device(const Arguments& arguments) {
  arguments.expect_count(1, 2);
  std::string device = arguments.get<std::string>(0, "the type of a device");
  if (arguments.count() > 1) device += str(':', arguments.natural(1, "the index of a device"));
  return fresh(std::move(device));
}

// Protocol 2 has no bytes: Python writes them as a text of the characters with these codes. Both
// empty bytes and an empty bytearray are calls of the type without arguments.
PickleNodeRef call_latin1(const Arguments& arguments) {
  if (arguments.count() == 0) return fresh(PickleBytes{});
  arguments.expect_count(2, 2);
  const auto& text = arguments.get<std::string>(0, "a text");
  const std::string_view encoding = arguments.get<std::string>(1, "an encoding");
  if (encoding != "latin1" && encoding != "latin-1")
    arguments.fail("gets an encoding other than latin1");
  PickleBytes result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      result.bytes += text[i];
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[++i]);
      result.bytes += static_cast<char>((byte & 3) << 6 | (next & 0x3f));
    } else {
      arguments.fail("gets a character that latin1 lacks");
    }
  }
  return fresh(std::move(result));
}

// Python 3.8 and later give a bytearray its bytes; earlier versions, their text and its encoding.
PickleNodeRef call_bytearray(const Arguments& arguments) {
  if (arguments.count() != 1) return call_latin1(arguments);
  arguments.get<PickleBytes>(0, "bytes");
  return node_of(arguments[0]);
}

struct Function {
  std::string_view name;
  PickleNodeRef (*call)(const Arguments&);
};

constexpr std::array<Function, 13> kFunctions{{
    {"collections.OrderedDict", call_ordered_dict},
    {"collections.Counter", call_counter},
    {"torch._utils._rebuild_tensor", call_rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", call_rebuild_tensor_v2},
    {"torch._utils._rebuild_tensor_v3", call_rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", call_rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", call_rebuild_parameter},
    {"torch.Size", call_size},
    {"torch.device", call_device},
    {"builtins.set", call_set},
    {"builtins.bytes", call_latin1},
    {"builtins.bytearray", call_bytearray},
    {"_codecs.encode", call_latin1},
}};

const Function* function_of(std::string_view name) {
  const auto* found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                   [&](const Function& each) { return each.name == name; });
  return found == kFunctions.end() ? nullptr : found;
}

// The type without its module; empty if it is not a type of storage.
std::string_view storage_type(std::string_view name) {
  if (name == kUntypedStorage) return name.substr(name.rfind('.') + 1);
  if (!name.starts_with(kTorch) || !contains(kStorages, name.substr(kTorch.size()))) return {};
  return name.substr(kTorch.size());
}

}  // namespace

bool is_known_name(std::string_view name) {
  return function_of(name) != nullptr || !storage_type(name).empty() ||
         (name.starts_with(kTorch) && contains(kTypes, name.substr(kTorch.size())));
}

PickleNodeRef pickled_call(const std::string& function, const PickleNode& arguments,
                           const PicklePlace& place) {
  const Function* found = function_of(function);
  if (found == nullptr) place.fail("calls ", function, ", which is not a function");
  return found->call(Arguments(function, arguments, place));
}

PickleNodeRef pickled_storage(const PickleNode& id, const PicklePlace& place) {
  const Arguments parts("a persistent id", id, place);
  parts.expect_count(5,
                     6);  // the sixth, of views in files before torch 1.6, is None since torch 0.4
  if (parts.get<std::string>(0, "\"storage\"") != "storage") {
    parts.fail("refers to something else than a storage");
  }
  PickleStorage storage;
  storage.type = storage_type(parts.get<PickleName>(1, "a type of storage").name);
  if (storage.type.empty()) parts.fail("gets a name as argument 2 that is not a type of storage");
  storage.key = parts.get<std::string>(2, "a key");
  storage.location = parts.get<std::string>(3, "a device");
  storage.elements = parts.natural(4, "a number of elements from 0");
  if (parts.count() > 5) parts.get<PickleNone>(5, "None");
  return fresh(std::move(storage));
}

}  // namespace lockstep::torch_file
