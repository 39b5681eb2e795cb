#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include <lockstep/core/encoding/utf8.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file/pickle_calls.h>
#include <lockstep/formats/torch_file/pickle_node.h>
#include <lockstep/formats/torch_file/read_pickle.h>

namespace lockstep::torch_file {
namespace {

constexpr int kProtocol = 2;  // the protocol of torch.save, and the last one without frames
constexpr std::uint64_t kMaximumWeightPerByte = 16;
constexpr std::size_t kMaximumNameBytes = 200;  // for a module or for a name in it
constexpr std::size_t kDimensionsPerValue = 8;  // their sizes and strides take a value's memory

// Unsupported opcodes, with their names in Python's pickletools.
constexpr std::array<std::pair<std::uint8_t, const char*>, 24> kRefusedOpcodes{{
    {'i', "INST"},
    {'o', "OBJ"},
    {'P', "PERSID"},
    {'p', "PUT"},
    {'g', "GET"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'I', "INT"},
    {'L', "LONG"},
    {'F', "FLOAT"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'d', "DICT"},
    {'l', "LIST"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x8b, "LONG4"},
    {0x8c, "SHORT_BINUNICODE"},
    {0x8f, "EMPTY_SET"},
    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"},
    {0x94, "MEMOIZE"},
    {0x95, "FRAME"},
}};

std::string opcode_text(std::uint8_t opcode) {
  for (const auto& [code, name] : kRefusedOpcodes) {
    if (code == opcode) return name;
  }
  char text[8];
  std::snprintf(text, sizeof(text), "0x%02x", opcode);
  return text;
}

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), place_{.name = name} {}

  Pickle read() {
    if (take() != 0x80) place_.fail("not a pickle: expected 0x80, the opcode PROTO");
    if (const int protocol = take(); protocol != kProtocol) {
      place_.fail("pickle protocol ", protocol, ", expected ", kProtocol,
                  ", which torch.save writes by default");
    }
    for (;;) {
      place_.byte = at_;
      const std::uint8_t opcode = take();
      if (opcode == '.') break;
      if (!build_plain(opcode) && !build_container(opcode) && !refer(opcode)) {
        place_.fail("the opcode ", opcode_text(opcode), ", which is not among those of weights");
      }
    }
    PickleNodeRef value = pop();
    if (!stack_.empty() || !marks_.empty()) place_.fail("values are left over at the pickle's end");
    return {.value = std::move(value), .bytes = at_};
  }

 private:
  // Opcodes that push a value, given by the opcode alone or with the bytes after it.
  bool build_plain(std::uint8_t opcode) {
    switch (opcode) {
      case 'N':
        push(none_);
        return true;
      case 0x88:
      case 0x89:
        push_new(opcode == 0x88);
        return true;
      case 'J':
        push_new(std::int64_t{static_cast<std::int32_t>(little_endian(4))});
        return true;
      case 'K':
        push_new(static_cast<std::int64_t>(little_endian(1)));
        return true;
      case 'M':
        push_new(static_cast<std::int64_t>(little_endian(2)));
        return true;
      case 0x8a:
        push_new(long_integer());
        return true;
      case 'G':
        push_new(std::bit_cast<double>(big_endian_64()));
        return true;
      case 'X':
        push_new(text(little_endian(4)));
        return true;
      case 'U':  // a Python 2 text
        push_new(text(little_endian(1)));
        return true;
      default:
        return false;
    }
  }

  bool build_container(std::uint8_t opcode) {
    switch (opcode) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push_tuple(0);
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple(opcode - std::size_t{0x84});
        return true;
      case 't':
        push_tuple(pop_mark());
        return true;
      case ']':
        push_new(PickleList{});
        return true;
      case '}':
        push_new(PickleDict{});
        return true;
      case 'a':
        append(1);
        return true;
      case 'e':
        append(pop_mark());
        return true;
      case 's':
        set_items(2);
        return true;
      case 'u':
        set_items(pop_mark());
        return true;
      default:
        return false;
    }
  }

  // Opcodes for the memo, names, calls, and references outside of the pickle.
  bool refer(std::uint8_t opcode) {
    switch (opcode) {
      case 'q':
        memoize(little_endian(1));
        return true;
      case 'r':
        memoize(little_endian(4));
        return true;
      case 'h':
        recall(little_endian(1));
        return true;
      case 'j':
        recall(little_endian(4));
        return true;
      case 'c':
        push_name();
        return true;
      case 'R':
        call();
        return true;
      case 'b':
        set_attributes();
        return true;
      case 'Q':
        push(pickled_storage(*pop(), place_));
        return true;
      default:
        return false;
    }
  }

  std::span<const std::byte> take_bytes(std::size_t count) {
    if (count > bytes_.size() - at_) {
      place_.fail("the pickle needs ", count, " more bytes here, the file holds ",
                  bytes_.size() - at_, " (truncated)");
    }
    const auto result = bytes_.subspan(at_, count);
    at_ += count;
    return result;
  }
  std::uint8_t take() { return std::to_integer<std::uint8_t>(take_bytes(1)[0]); }

  std::uint64_t little_endian(std::size_t count) {
    std::uint64_t value = 0;
    const auto bytes = take_bytes(count);
    for (std::size_t i = count; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return value;
  }

  std::uint64_t big_endian_64() {
    std::uint64_t value = 0;
    for (std::byte byte : take_bytes(8)) value = value << 8 | std::to_integer<std::uint64_t>(byte);
    return value;
  }

  // Two's complement of any number of bytes.
  std::int64_t long_integer() {
    const std::size_t count = take();
    if (count > sizeof(std::int64_t)) {
      place_.fail("an integer of ", count, " bytes, Lockstep reads those of 64 bits");
    }
    if (count == 0) return 0;
    const auto unused = static_cast<int>(8 * (sizeof(std::int64_t) - count));
    return static_cast<std::int64_t>(little_endian(count) << unused) >> unused;
  }

  std::string text(std::size_t count) {
    const auto bytes = take_bytes(count);
    std::string result(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_utf8(result)) place_.fail("a text is not UTF-8");
    return result;
  }

  std::string line() {
    std::string result;
    for (char c = static_cast<char>(take()); c != '\n'; c = static_cast<char>(take())) {
      if (c <= ' ' || c > '~' || result.size() == kMaximumNameBytes) {
        place_.fail("a name holds something else than at most ", kMaximumNameBytes,
                    " printable characters");
      }
      result += c;
    }
    return result;
  }

  void count_values(std::size_t more) {
    values_ += more;
    if (values_ > kMaximumPickleValues) {
      place_.fail("the pickle has more than ", kMaximumPickleValues, " values");
    }
  }

  void push(PickleNodeRef node) {
    count_values(1);
    stack_.push_back(std::move(node));
  }

  void push_new(decltype(PickleValue::content) content) {
    auto node = std::make_shared<PickleNode>();
    node->content = std::move(content);
    push(std::move(node));
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleNodeRef& top() {
    if (stack_.size() <= floor()) place_.fail("the opcode needs a value that is not there");
    return stack_.back();
  }

  PickleNodeRef pop() {
    PickleNodeRef node = std::move(top());
    stack_.pop_back();
    return node;
  }

  // Pops the mark and returns the number of values after it, which the caller pops.
  std::size_t pop_mark() {
    if (marks_.empty()) place_.fail("the opcode needs a mark that is not there");
    const std::size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }

  std::vector<PickleNodeRef> pop_values(std::size_t count) {
    if (count > stack_.size() - floor()) {
      place_.fail("the opcode needs ", count, " values, there are ", stack_.size() - floor());
    }
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<PickleNodeRef> values(std::make_move_iterator(first),
                                      std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return values;
  }

  // Call before `part` becomes a part of `whole`.
  void attach(const PickleNodeRef& part, PickleNode& whole) {
    if (part.get() == &whole) place_.fail("a value would contain itself");
    part->is_part = true;
    whole.weight += part->weight;
    whole.depth = std::max(whole.depth, part->depth + 1);
    if (whole.depth > kMaximumPickleDepth) {
      place_.fail("values are nested more deeply than ", kMaximumPickleDepth, " times");
    }
    if (whole.weight > kMaximumWeightPerByte * at_) {
      place_.fail("parts are shared so often that they would be ", whole.weight,
                  " values if they were written out, expected at most ", kMaximumWeightPerByte,
                  " for each byte before it");
    }
  }

  void push_tuple(std::size_t count) {
    PickleTuple tuple;
    auto node = std::make_shared<PickleNode>();
    for (PickleNodeRef& item : pop_values(count)) {
      attach(item, *node);
      tuple.items.push_back(std::move(item));
    }
    node->content = std::move(tuple);
    push(std::move(node));
  }

  // The list or dictionary at the top of the stack, for modification.
  template <class Container>
  Container& changeable(const char* expected) {
    PickleNode& node = *top();
    auto* container = std::get_if<Container>(&node.content);
    if (container == nullptr) {
      place_.fail("the opcode is for ", expected, ", got ", kind_of(node));
    }
    if (node.is_part) place_.fail(expected, " changes when it is already a part of another value");
    return *container;
  }

  void append(std::size_t count) {
    auto items = pop_values(count);
    auto& list = changeable<PickleList>("a list");
    for (PickleNodeRef& item : items) {
      attach(item, *top());
      list.items.push_back(std::move(item));
    }
  }

  void set_items(std::size_t count) {
    if (count % 2 != 0) place_.fail("a dictionary gets a key without a value");
    auto items = pop_values(count);
    auto& dict = changeable<PickleDict>("a dictionary");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      add_key(*items[i], *top());
      attach(items[i], *top());
      attach(items[i + 1], *top());
      dict.items.emplace_back(std::move(items[i]), std::move(items[i + 1]));
    }
  }

  void add_key(const PickleNode& key, PickleNode& dict) {
    if (!dict.keys) dict.keys = std::make_unique<PickleKeys>();
    if (const auto* text = std::get_if<std::string>(&key.content)) {
      if (dict.keys->texts.insert(*text).second) return;
      place_.fail("a dictionary repeats the key '", formats::printable(*text), "'");
    }
    if (const auto* number = std::get_if<std::int64_t>(&key.content)) {
      if (dict.keys->numbers.insert(*number).second) return;
      place_.fail("a dictionary repeats the key ", *number);
    }
    if (std::holds_alternative<PickleList>(key.content) ||
        std::holds_alternative<PickleDict>(key.content)) {
      place_.fail("a dictionary gets ", kind_of(key), " as a key");
    }
  }

  void memoize(std::uint64_t index) {
    memo_[static_cast<std::uint32_t>(index)] = top();
    if (memo_.size() > kMaximumPickleValues) place_.fail("the memo is too large");
  }

  void recall(std::uint64_t index) {
    const auto found = memo_.find(static_cast<std::uint32_t>(index));
    if (found == memo_.end()) place_.fail("the memo has no entry ", index);
    // Costs only an entry of the stack, which the byte of the opcode pays for.
    stack_.push_back(found->second);
  }

  void push_name() {
    const std::string module = line();
    const std::string name = (module == "__builtin__" ? "builtins" : module) + '.' + line();
    if (!is_known_name(name)) {
      place_.fail("the file names ", name,
                  ", which is not among the types and functions of weights; none of its code was "
                  "run. If this is a whole module, save net.state_dict() instead of net; save "
                  "other tensors in plain dictionaries");
    }
    push_new(PickleName{name});
  }

  void call() {
    const PickleNodeRef arguments = pop();
    const PickleNodeRef function = pop();
    const auto* name = std::get_if<PickleName>(&function->content);
    if (name == nullptr) place_.fail("calls ", kind_of(*function), ", expected a function");
    PickleNodeRef result = pickled_call(name->name, *arguments, place_);
    if (const auto* tensor = std::get_if<PickleTensor>(&result->content)) {
      count_values(tensor->shape.size() / kDimensionsPerValue);
    }
    push(std::move(result));
  }

  // Python stores attributes beside the items of a state dict ("_metadata"). They are dropped.
  void set_attributes() {
    const PickleNodeRef attributes = pop();
    if (!std::holds_alternative<PickleDict>(attributes->content) || !top()->is_ordered_dict) {
      place_.fail("sets attributes of ", kind_of(*top()),
                  ", which only an OrderedDict has in files of weights");
    }
  }

  std::span<const std::byte> bytes_;
  PicklePlace place_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
  const PickleNodeRef none_ = std::make_shared<PickleNode>();
  std::vector<PickleNodeRef> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleNodeRef> memo_;
};

}  // namespace

const char* kind_of(const PickleValue& value) {
  constexpr std::array<const char*, std::variant_size_v<decltype(PickleValue::content)>> kKinds = {
      "None",    "a truth value", "a whole number", "a number", "a text",    "bytes",
      "a tuple", "a list",        "a dictionary",   "a name",   "a storage", "a tensor"};
  return kKinds[value.content.index()];
}

}  // namespace lockstep::torch_file

namespace lockstep {

PickleRef PickleDict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    const auto* text = std::get_if<std::string>(&name->content);
    if (text != nullptr && *text == key) return value;
  }
  return nullptr;
}

torch_file::Pickle torch_file::read_pickle(std::span<const std::byte> bytes,
                                           std::string_view name) {
  return PickleReader(bytes, name).read();
}

}  // namespace lockstep
