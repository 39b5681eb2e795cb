#include <lockstep/export/onnx/onnx_file.h>

#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <protozero/pbf_writer.hpp>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/checksum.h>

namespace lockstep::onnx {
namespace {

// The field numbers of onnx.proto.
namespace field {
enum Model : protozero::pbf_tag_type {
  kIrVersion = 1,
  kProducerName = 2,
  kProducerVersion = 3,
  kModelGraph = 7,
  kOpsetImport = 8,
  kMetadata = 14,
};
enum Opset : protozero::pbf_tag_type { kOpsetVersion = 2 };
enum StringPair : protozero::pbf_tag_type { kKey = 1, kValue = 2 };
enum Graph : protozero::pbf_tag_type {
  kNode = 1,
  kGraphName = 2,
  kInitializer = 5,
  kInput = 11,
  kOutput = 12,
};
enum Node : protozero::pbf_tag_type {
  kNodeInput = 1,
  kNodeOutput = 2,
  kNodeName = 3,
  kOpType = 4,
  kAttribute = 5,
};
enum Attribute : protozero::pbf_tag_type {
  kAttributeName = 1,
  kFloat = 2,
  kInt = 3,
  kString = 4,
  kTensor = 5,
  kFloats = 7,
  kInts = 8,
  kStrings = 9,
  kAttributeType = 20,
};
enum Tensor : protozero::pbf_tag_type {
  kDims = 1,
  kDataType = 2,
  kTensorName = 8,
  kRawData = 9,
  kExternalData = 13,
  kDataLocation = 14,
};
enum ValueInfo : protozero::pbf_tag_type { kValueName = 1, kValueType = 2 };
enum Type : protozero::pbf_tag_type { kTensorType = 1, kElementType = 1, kShape = 2 };
enum Shape : protozero::pbf_tag_type { kDimension = 1, kDimensionSize = 1, kDimensionSymbol = 2 };
}  // namespace field

constexpr std::int32_t kLocationExternal = 1;
// Readers map the file: aligned tensors can be used in place.
constexpr std::int64_t kAlignment = 4096;

// The first IR version that supports the opset.
int ir_version(int opset) { return opset >= 19 ? 9 : 8; }

// The place of a tensor's values in the file of external data.
struct ExternalPlace {
  std::string file{};
  std::int64_t offset = 0;
};

// Strings of protobuf are UTF-8. Names of modules and files may have any bytes.
void write_text(protozero::pbf_writer& out, protozero::pbf_tag_type tag, std::string_view text) {
  out.add_string(tag, utf8_text(text));
}

void write_string_pair(protozero::pbf_writer& parent, protozero::pbf_tag_type tag,
                       std::string_view key, std::string_view value) {
  protozero::pbf_writer pair(parent, tag);
  write_text(pair, field::kKey, key);
  write_text(pair, field::kValue, value);
}

void write_tensor(protozero::pbf_writer& parent, protozero::pbf_tag_type tag,
                  const TensorData& tensor, const ExternalPlace* place) {
  protozero::pbf_writer out(parent, tag);
  out.add_packed_int64(field::kDims, tensor.sizes.begin(), tensor.sizes.end());
  out.add_int32(field::kDataType, static_cast<std::int32_t>(tensor.type));
  write_text(out, field::kTensorName, tensor.name);
  if (place == nullptr) {
    out.add_bytes(field::kRawData, reinterpret_cast<const char*>(tensor.bytes.data()),
                  tensor.bytes.size());
    return;
  }
  write_string_pair(out, field::kExternalData, "location", place->file);
  write_string_pair(out, field::kExternalData, "offset", std::to_string(place->offset));
  write_string_pair(out, field::kExternalData, "length", std::to_string(tensor.bytes.size()));
  out.add_enum(field::kDataLocation, kLocationExternal);
}

void write_attribute(protozero::pbf_writer& parent, const Attribute& attribute) {
  // AttributeProto.AttributeType, in the order of the variant's alternatives.
  constexpr std::int32_t kTypes[] = {2, 1, 3, 7, 6, 4, 8};
  protozero::pbf_writer out(parent, field::kAttribute);
  write_text(out, field::kAttributeName, attribute.name);
  std::visit(
      [&out](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::int64_t>) {
          out.add_int64(field::kInt, value);
        } else if constexpr (std::is_same_v<Value, float>) {
          out.add_float(field::kFloat, value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          out.add_bytes(field::kString, value);
        } else if constexpr (std::is_same_v<Value, TensorData>) {
          write_tensor(out, field::kTensor, value, nullptr);
        } else if constexpr (std::is_same_v<Value, std::vector<float>>) {
          for (const float each : value) out.add_float(field::kFloats, each);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          for (const std::string& each : value) out.add_bytes(field::kStrings, each);
        } else {
          for (const std::int64_t each : value) out.add_int64(field::kInts, each);
        }
      },
      attribute.value);
  out.add_enum(field::kAttributeType, kTypes[attribute.value.index()]);
}

void write_node(protozero::pbf_writer& parent, const OnnxNode& node) {
  protozero::pbf_writer out(parent, field::kNode);
  for (const std::string& name : node.inputs) write_text(out, field::kNodeInput, name);
  for (const std::string& name : node.outputs) write_text(out, field::kNodeOutput, name);
  write_text(out, field::kNodeName, node.name);
  write_text(out, field::kOpType, node.op_type);
  for (const Attribute& attribute : node.attributes) write_attribute(out, attribute);
}

void write_value_info(protozero::pbf_writer& parent, protozero::pbf_tag_type tag,
                      const ValueInfo& value) {
  protozero::pbf_writer out(parent, tag);
  write_text(out, field::kValueName, value.name);
  protozero::pbf_writer type(out, field::kValueType);
  protozero::pbf_writer tensor(type, field::kTensorType);
  tensor.add_int32(field::kElementType, static_cast<std::int32_t>(value.type));
  if (value.dimensions.empty()) {
    // A message without content writes nothing, and without a shape the rank would be unknown.
    tensor.add_message(field::kShape, "", 0);
    return;
  }
  protozero::pbf_writer shape(tensor, field::kShape);
  for (const Dimension& dimension : value.dimensions) {
    protozero::pbf_writer each(shape, field::kDimension);
    if (dimension.symbol.empty()) {
      each.add_int64(field::kDimensionSize, dimension.size);
    } else {
      write_text(each, field::kDimensionSymbol, dimension.symbol);
    }
  }
}

// `places` has an entry for each initializer whose values are stored elsewhere.
std::string serialize(const Model& model, const std::map<std::string, ExternalPlace>& places,
                      std::int64_t bytes_inside) {
  std::string content;
  content.reserve(static_cast<std::size_t>(bytes_inside) + (std::size_t{1} << 20));
  protozero::pbf_writer out(content);
  out.add_int64(field::kIrVersion, ir_version(model.opset));
  write_text(out, field::kProducerName, model.producer_name);
  write_text(out, field::kProducerVersion, model.producer_version);
  {
    protozero::pbf_writer opset(out, field::kOpsetImport);
    opset.add_int64(field::kOpsetVersion, model.opset);
  }
  for (const auto& [key, value] : model.metadata) {
    write_string_pair(out, field::kMetadata, key, value);
  }
  protozero::pbf_writer graph(out, field::kModelGraph);
  write_text(graph, field::kGraphName, model.graph.name);
  for (const OnnxNode& node : model.graph.nodes) write_node(graph, node);
  for (const ValueInfo& value : model.graph.inputs) write_value_info(graph, field::kInput, value);
  for (const ValueInfo& value : model.graph.outputs) {
    write_value_info(graph, field::kOutput, value);
  }
  for (const TensorData& tensor : model.graph.initializers) {
    const auto place = places.find(tensor.name);
    write_tensor(graph, field::kInitializer, tensor,
                 place == places.end() ? nullptr : &place->second);
  }
  graph.commit();
  return content;
}

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kChecksumDigits = 16;
constexpr std::string_view kDataEnding = ".data";

bool is_external(const TensorData& tensor) {
  return static_cast<std::int64_t>(tensor.bytes.size()) >= kLeastExternalBytes;
}

// The name of the model's file as its data files have it: the model names them, in UTF-8.
std::string name_for_data(const std::filesystem::path& path) {
  return utf8_text(path.filename().string());
}

std::filesystem::path data_file_of(const std::filesystem::path& path, const Model& model) {
  formats::Checksum checksum;
  for (const TensorData& tensor : model.graph.initializers) {
    if (!is_external(tensor)) continue;
    const std::uint64_t size = tensor.bytes.size();  // determines where the next one lies
    checksum.add(std::as_bytes(std::span(&size, 1)));
    checksum.add(tensor.bytes);
  }
  std::string digits;
  for (std::size_t i = kChecksumDigits; i-- > 0;) {
    digits += kHexDigits[checksum.value() >> (4 * i) & 15];
  }
  return path.parent_path() / (name_for_data(path) + '.' + digits + std::string(kDataEnding));
}

// Whether data_file_of() may have produced this name for a file beside a model called `model`.
bool is_data_file(std::string_view name, std::string_view model) {
  if (!name.starts_with(model) || !name.ends_with(kDataEnding) ||
      name.size() != model.size() + 1 + kChecksumDigits + kDataEnding.size()) {
    return false;
  }
  name.remove_prefix(model.size());
  name.remove_suffix(kDataEnding.size());
  return name.front() == '.' && name.find_first_not_of(kHexDigits, 1) == std::string_view::npos;
}

// Also removes incomplete files left by a killed process.
void remove_former_data(const std::filesystem::path& path, const std::filesystem::path& kept) {
  const std::filesystem::path folder = folder_of(path);
  std::error_code ignored;
  std::set<std::filesystem::path> former;
  std::set<std::filesystem::path> incomplete;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const std::string complete = name.substr(0, name.rfind(".tmp-"));
    if (!is_data_file(complete, name_for_data(path))) continue;
    if (name != complete) {
      incomplete.insert(folder / complete);
    } else if (name != kept.filename()) {
      former.insert(entry->path());
    }
  }
  for (const std::filesystem::path& each : former) std::filesystem::remove(each, ignored);
  for (const std::filesystem::path& each : incomplete) temporary_beside(each);
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

WrittenModel write_model(const std::filesystem::path& path, const Model& model,
                         std::int64_t most_bytes) {
  std::int64_t inside = 0;
  for (const TensorData& tensor : model.graph.initializers) {
    inside += static_cast<std::int64_t>(tensor.bytes.size());
  }
  WrittenModel written;
  std::map<std::string, ExternalPlace> places;
  if (inside > most_bytes) {
    written.data = data_file_of(path, model);
    AtomicFile data(written.data);
    std::int64_t offset = 0;
    for (const TensorData& tensor : model.graph.initializers) {
      if (!is_external(tensor)) continue;
      const auto size = static_cast<std::int64_t>(tensor.bytes.size());
      offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
      data.write_at(static_cast<std::uint64_t>(offset), text_of(tensor.bytes));
      places[tensor.name] = {.file = written.data.filename().string(), .offset = offset};
      offset += size;
      inside -= size;
    }
    data.commit();
    written.bytes = offset;
  }
  const std::string content = serialize(model, places, inside);
  write_file_atomically(path, content);
  remove_former_data(path, written.data);
  written.bytes += static_cast<std::int64_t>(content.size());
  return written;
}

}  // namespace lockstep::onnx
