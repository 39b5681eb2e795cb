#include <lockstep/formats/safetensors.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/strict_json.h>

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaximumHeaderBytes = 100'000'000;  // the reference implementation's bound
constexpr int kMaximumDepth = 4;  // {name: {"shape": [..]}} and one to spare
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kHeaderChecksum = "lockstep.xxh3_64";
constexpr const char* kTensorChecksum = "lockstep.xxh3_64:";

constexpr std::array<std::pair<std::string_view, std::size_t>, 16> kElementBytes{{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"I64", 8},
    {"U64", 8},
    {"F64", 8},
    {"C64", 8},
}};

// element_bytes times the product of `shape`; nothing if that overflows or a side is negative.
std::optional<std::size_t> bytes_of(std::size_t element_bytes,
                                    const std::vector<std::int64_t>& shape) {
  std::size_t total = element_bytes;
  for (std::int64_t side : shape) {
    if (side < 0 || __builtin_mul_overflow(total, static_cast<std::size_t>(side), &total)) {
      return std::nullopt;
    }
  }
  return total;
}

bool is_checksum(std::string_view key) {
  return key == kHeaderChecksum || key.starts_with(kTensorChecksum);
}

std::string checksum_text(std::span<const std::byte> bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, formats::checksum(bytes));
  return text;
}

// The checksum covers the header's content, not its spelling: another program may rewrite it.
std::string header_checksum(Json header) {
  header[kMetadataKey].erase(kHeaderChecksum);
  const std::string text = header.dump();
  return checksum_text(std::as_bytes(std::span(text)));
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  Safetensors parse() {
    const Json header = read_header();
    Safetensors result;
    if (header.contains(kMetadataKey)) result.metadata = read_metadata(header[kMetadataKey]);
    const SafetensorsMetadata checksums = take_checksums(result.metadata);
    result.has_checksums = !checksums.empty();
    // First, so that no other error is reported about the content of a damaged header.
    if (result.has_checksums) check(checksums, kHeaderChecksum, "header", header_checksum(header));
    for (const auto& [key, entry] : header.items()) {
      if (key != kMetadataKey) result.tensors.emplace(key, read_tensor(key, entry));
    }
    check_layout();
    if (result.has_checksums) check_tensors(checksums, result.tensors);
    return result;
  }

 private:
  // What a file may be that users give by mistake. An ONNX model begins with its ir_version, a
  // small number, and the next field of its message.
  static const char* other_type(std::span<const std::byte> bytes) {
    const auto begins_with = [&](std::string_view magic) {
      return bytes.size() >= magic.size() &&
             std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
    };
    if (begins_with("\xff\xd8\xff")) return "a JPEG image";
    if (begins_with("\x89PNG\r\n")) return "a PNG image";
    const bool has_version = begins_with("\x08") && std::to_integer<int>(bytes[1]) < 0x20;
    if (has_version && std::to_integer<int>(bytes[2]) == 0x12) return "an ONNX model";
    return "something else, or damaged";
  }

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }

  Json read_header() {
    if (bytes_.size() < kLengthBytes)
      fail("truncated safetensors file of ", bytes_.size(), " bytes");
    std::uint64_t length = 0;
    for (int i = kLengthBytes - 1; i >= 0; --i) {
      length = length << 8 | std::to_integer<std::uint64_t>(bytes_[i]);
    }
    const std::size_t rest = bytes_.size() - kLengthBytes;
    if (length > kMaximumHeaderBytes && length > rest) {
      fail("is ", other_type(bytes_), ", not a file of weights (.safetensors, .pt, .pth)");
    }
    if (length > kMaximumHeaderBytes && length <= rest) {
      fail("the safetensors header has ", length, " bytes, the format allows at most ",
           kMaximumHeaderBytes);
    }
    if (length > rest) {
      fail("the safetensors header claims ", length, " bytes, the file holds ", rest,
           " after its length (truncated, or not a safetensors file)");
    }
    data_ = bytes_.subspan(kLengthBytes + length);
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes;
    if (length == 0 || *begin != '{') fail("the safetensors header does not begin with '{'");
    return parse_json({begin, static_cast<std::size_t>(length)});
  }

  Json parse_json(std::string_view text) const {
    try {
      return formats::parse_strict_json(text, kMaximumDepth);
    } catch (const formats::StrictJsonError& error) {
      fail("the safetensors header ", error.what());
    }
  }

  SafetensorsMetadata read_metadata(const Json& entry) const {
    if (!entry.is_object()) fail("__metadata__ is not an object");
    SafetensorsMetadata metadata;
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail("__metadata__ '", formats::printable(key), "' is not a string");
      metadata.emplace(key, value.get<std::string>());
    }
    return metadata;
  }

  static SafetensorsMetadata take_checksums(SafetensorsMetadata& metadata) {
    SafetensorsMetadata checksums;
    for (const auto& [key, value] : metadata) {
      if (is_checksum(key)) checksums.emplace(key, value);
    }
    for (const auto& [key, value] : checksums) metadata.erase(key);
    return checksums;
  }

  void check(const SafetensorsMetadata& checksums, const std::string& key, const std::string& what,
             const std::string& got) const {
    const auto expected = checksums.find(key);
    if (expected == checksums.end()) {
      fail("the ", what, " has no checksum, but other parts of the file have one: it is damaged");
    }
    if (expected->second == got) return;
    fail("the ", what, " is damaged: its checksum is ", got, ", expected ",
         formats::printable(expected->second));
  }

  void check_tensors(const SafetensorsMetadata& checksums, const TensorViews& tensors) const {
    for (const auto& [name, view] : tensors) {
      check(checksums, kTensorChecksum + name, str("tensor '", formats::printable(name), "'"),
            checksum_text(view.bytes));
    }
  }

  TensorView read_tensor(const std::string& key, const Json& entry) {
    const std::string tensor = str("tensor '", formats::printable(key), "'");
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
        !entry.contains("shape") || !entry.contains("data_offsets") ||
        !entry["dtype"].is_string()) {
      fail(tensor, " needs exactly dtype, shape and data_offsets");
    }
    TensorView view;
    view.dtype = entry["dtype"].get<std::string>();
    const std::size_t element_bytes = safetensors_element_bytes(view.dtype);
    if (element_bytes == 0)
      fail(tensor, " has the unknown dtype '", formats::printable(view.dtype), "'");
    for (std::uint64_t side : read_numbers(entry["shape"], tensor, "shape")) {
      view.shape.push_back(static_cast<std::int64_t>(side));
    }
    const auto offsets = read_numbers(entry["data_offsets"], tensor, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_.size()) {
      fail(tensor, " has data_offsets outside of the ", data_.size(), " bytes of data");
    }
    const std::size_t got = offsets[1] - offsets[0];
    const auto expected = bytes_of(element_bytes, view.shape);
    if (!expected || *expected != got) {
      fail(tensor, " holds ", got, " bytes, its shape and dtype ask for ",
           expected ? str(*expected) : std::string("more than memory can hold"));
    }
    view.bytes = data_.subspan(offsets[0], got);
    ranges_.emplace_back(offsets[0], offsets[1]);
    return view;
  }

  std::vector<std::uint64_t> read_numbers(const Json& array, const std::string& tensor,
                                          const char* what) const {
    if (!array.is_array()) fail(tensor, ": ", what, " is not a list");
    std::vector<std::uint64_t> numbers;
    for (const Json& number : array) {
      constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > limit) {
        fail(tensor, ": ", what, " holds something else than whole numbers from 0");
      }
      numbers.push_back(number.get<std::uint64_t>());
    }
    return numbers;
  }

  // The format allows no overlap and no unused bytes, so that nothing can hide in a file.
  void check_layout() {
    std::sort(ranges_.begin(), ranges_.end());
    std::uint64_t end = 0;
    for (const auto& [begin, next_end] : ranges_) {
      if (begin != end) {
        fail("tensors overlap or leave a hole at byte ", std::min(begin, end), " of the data");
      }
      end = next_end;
    }
    if (end != data_.size()) {
      fail("the tensors end at byte ", end, " of the data, the file at ", data_.size());
    }
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  std::string_view name_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace

std::size_t safetensors_element_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kElementBytes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return Parser(bytes, name).parse();
}

namespace {

using TensorOrder = std::vector<const TensorViews::value_type*>;

TensorOrder order_in_file(const TensorViews& tensors) {
  TensorOrder order;
  for (const auto& item : tensors) {
    const auto& [key, view] = item;
    const std::size_t element_bytes = safetensors_element_bytes(view.dtype);
    const auto expected = bytes_of(element_bytes, view.shape);
    if (key == kMetadataKey || element_bytes == 0 || expected != view.bytes.size()) {
      throw CheckpointError(str("cannot write tensor '", formats::printable(key),
                                "': ", view.bytes.size(), " bytes of dtype '", view.dtype,
                                "', expected ", expected.value_or(0)));
    }
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return safetensors_element_bytes(a->second.dtype) > safetensors_element_bytes(b->second.dtype);
  });
  return order;
}

Json header_of(const TensorOrder& order, const SafetensorsMetadata& metadata) {
  Json header = {{kMetadataKey, metadata}};
  std::size_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, view] = *item;
    header[name] = {{"dtype", view.dtype},
                    {"shape", view.shape},
                    {"data_offsets", {offset, offset + view.bytes.size()}}};
    header[kMetadataKey][kTensorChecksum + name] = checksum_text(view.bytes);
    offset += view.bytes.size();
  }
  header[kMetadataKey][kHeaderChecksum] = header_checksum(header);
  return header;
}

std::string header_text(const TensorOrder& order, const SafetensorsMetadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (!is_checksum(key)) continue;
    throw CheckpointError(str("cannot write safetensors: the metadata '", formats::printable(key),
                              "' has the name of a checksum; give it another"));
  }
  std::string text;
  try {
    text = header_of(order, metadata).dump();
  } catch (const Json::exception& error) {
    throw CheckpointError(str("cannot write safetensors: a name or metadata is not UTF-8 (",
                              formats::printable(json_problem(error)), ")"));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  if (text.size() > kMaximumHeaderBytes) {
    throw CheckpointError(str("cannot write safetensors: the header has ", text.size(),
                              " bytes, the format allows at most ", kMaximumHeaderBytes));
  }
  return text;
}

}  // namespace

SafetensorsPieces safetensors_pieces(const TensorViews& tensors,
                                     const SafetensorsMetadata& metadata) {
  const TensorOrder order = order_in_file(tensors);
  const std::string text = header_text(order, metadata);
  SafetensorsPieces pieces;
  pieces.head.reserve(kLengthBytes + text.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    pieces.head.push_back(static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xff));
  }
  pieces.head += text;
  for (const auto* item : order) pieces.data.push_back(item->second.bytes);
  return pieces;
}

std::string serialize_safetensors(const TensorViews& tensors, const SafetensorsMetadata& metadata) {
  const SafetensorsPieces pieces = safetensors_pieces(tensors, metadata);
  std::size_t data_bytes = 0;
  for (const auto& bytes : pieces.data) data_bytes += bytes.size();
  std::string content;
  content.reserve(pieces.head.size() + data_bytes);
  content += pieces.head;
  for (const auto& bytes : pieces.data) {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return content;
}

void write_safetensors(const std::filesystem::path& path, const TensorViews& tensors,
                       const SafetensorsMetadata& metadata) {
  const SafetensorsPieces pieces = safetensors_pieces(tensors, metadata);
  AtomicFile file(path);
  file.write_at(0, pieces.head);
  std::uint64_t offset = pieces.head.size();
  for (const auto& bytes : pieces.data) {
    file.write_at(offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    offset += bytes.size();
  }
  file.commit();
}

}  // namespace lockstep
