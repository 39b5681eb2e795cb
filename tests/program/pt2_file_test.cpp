#include <lockstep/program/graph/pt2_file.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <lockstep/program/graph/signature.h>
#include <tests/formats/torch_bytes.h>
#include <tests/program/pt2_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using namespace std::string_view_literals;
using nlohmann::json;
using program::parse_pt2_file;
using program::Pt2File;
using program::StoredTensor;

using Sizes = std::vector<std::int64_t>;

constexpr const char* kWeights = "net/data/weights/model_weights_config.json";
constexpr const char* kConstants = "net/data/constants/model_constants_config.json";
constexpr const char* kModel = "net/models/model.json";

std::string refusal_of_pt2(std::string_view file) {
  return message_of<CheckpointError>([&] { parse_pt2_file(as_bytes(file), "x"); });
}
std::string refusal_of_pt2(const ArchiveEntries& entries) {
  return refusal_of_pt2(zip_of(entries));
}

// Changes the JSON in the entry `name`.
template <class Change>
void change(ArchiveEntries& entries, const std::string& name, const Change& change_json) {
  std::string& text = entry(entries, name);
  json content = json::parse(text);
  change_json(content);
  text = content.dump();
}

// pt2_entries() with a changed description of the weight `scale`, whose file has 3 float32.
template <class Change>
ArchiveEntries with_scale(const Change& change_payload) {
  ArchiveEntries entries = pt2_entries();
  change(entries, kWeights, [&](json& config) { change_payload(config["config"]["scale"]); });
  return entries;
}

json numbers_json(const Sizes& numbers) {
  json list = json::array();
  for (const std::int64_t number : numbers) list.push_back({{"as_int", number}});
  return list;
}

ArchiveEntries with_geometry(const Sizes& sizes, const Sizes& strides, std::int64_t offset) {
  return with_scale([&](json& payload) {
    payload["tensor_meta"]["sizes"] = numbers_json(sizes);
    payload["tensor_meta"]["strides"] = numbers_json(strides);
    payload["tensor_meta"]["storage_offset"]["as_int"] = offset;
  });
}

std::string bytes_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.storage.data()), tensor.storage.size()};
}

void expect_content(const std::string& bytes) {
  const Pt2File file = parse_pt2_file(as_bytes(bytes), "x");
  EXPECT_EQ(file.program.graph.nodes.size(), 3U);
  ASSERT_EQ(file.state.size(), 2U);
  ASSERT_EQ(file.constants.size(), 1U);
  EXPECT_EQ(bytes_of(file.state.at("scale")), scale_bytes());
  EXPECT_EQ(bytes_of(file.state.at("mean")), mean_bytes());
  EXPECT_EQ(bytes_of(file.constants.at("shift")), shift_bytes());
  const StoredTensor& scale = file.state.at("scale");
  EXPECT_EQ(scale.dtype.code, 7);
  EXPECT_EQ(scale.sizes, Sizes{3});
  EXPECT_EQ(scale.strides, Sizes{1});
  EXPECT_EQ(scale.offset, 0);
  EXPECT_TRUE(file.has_checksums);
  const auto* begin = as_bytes(bytes).data();
  EXPECT_TRUE(scale.storage.data() >= begin && scale.storage.data() < begin + bytes.size())
      << "the tensor is a copy";
}

TEST(Pt2FileLayout, OfPyTorch29) { expect_content(zip_of(pt2_entries())); }
TEST(Pt2FileLayout, OfPyTorch28) { expect_content(zip_of(pt2_entries_of_2_8())); }
TEST(Pt2FileLayout, OfPyTorch27) { expect_content(zip_of(pt2_entries_of_2_7())); }

// The name of the folder is that of the file at export, and the name of the model may be another.
TEST(Pt2FileLayout, HasAnyNames) {
  ArchiveEntries entries = pt2_entries();
  for (auto& [name, content] : entries) {
    for (const auto& [from, to] : {std::pair("net/", "other/"),
                                   {"model.json", "left.json"},
                                   {"model_weights", "left_weights"},
                                   {"model_constants", "left_constants"}}) {
      const std::size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
    }
  }
  ASSERT_NO_THROW(entry(entries, "other/models/left.json"));
  expect_content(zip_of(entries));
}

TEST(Pt2FileLayout, IsOneOfTorchExportSave) {
  EXPECT_EQ(refusal_of_pt2(""), "x: not a zip file, expected one of torch.export.save (.pt2)");
  EXPECT_EQ(refusal_of_pt2("PK"), "x: not a zip file, expected one of torch.export.save (.pt2)");
  EXPECT_EQ(refusal_of_pt2("{\"schema_version\": 8}"),
            "x: not a zip file, expected one of torch.export.save (.pt2)");
  EXPECT_EQ(refusal_of_pt2(zip_of({})),
            "x: not a zip file, expected one of torch.export.save (.pt2)")
      << "an archive without entries";
  EXPECT_EQ(refusal_of_pt2(small_torch_file()),
            "x: a file of torch.save or torch.jit.save; export the model with "
            "torch.export.export() and save it with torch.export.save()");
  EXPECT_EQ(refusal_of_pt2(ArchiveEntries{{"net/a.txt", "a"}}),
            "x: the zip file is not one of torch.export.save: it has no models/model.json");
  EXPECT_EQ(refusal_of_pt2(ArchiveEntries{{"a.txt", "a"}}),
            "x: the zip file is not one of torch.export.save: it has no models/model.json");
  ArchiveEntries entries = pt2_entries();
  entries.emplace_back("net/models/other.json", "{}");
  EXPECT_EQ(refusal_of_pt2(entries), "x: the file has 2 models, expected one");
  entries = pt2_entries();
  entries.emplace_back("outside.txt", "a");
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: the zip file is not one of torch.export.save: 'outside.txt' lies outside of the "
            "folder 'net'");
}

TEST(Pt2FileLayout, HasAllParts) {
  for (const char* name : {kWeights, kConstants, "net/data/weights/weight_1"}) {
    ArchiveEntries entries = pt2_entries();
    std::erase_if(entries, [&](const auto& known) { return known.first == name; });
    EXPECT_EQ(refusal_of_pt2(entries), str("x: the zip file is not one of torch.export.save: it "
                                           "has no '",
                                           std::string(name).substr(4), "'"));
  }
  for (const char* name : {"serialized_state_dict.pt", "serialized_constants.pt"}) {
    ArchiveEntries entries = pt2_entries_of_2_7();
    std::erase_if(entries, [&](const auto& known) { return known.first == name; });
    EXPECT_EQ(refusal_of_pt2(entries),
              str("x: the zip file is not one of torch.export.save: it has no '", name, "'"));
  }
}

TEST(Pt2FileLayout, NamesThePartThatIsDamaged) {
  ArchiveEntries entries = pt2_entries();
  entry(entries, kModel) = "{}";
  EXPECT_EQ(refusal_of_pt2(entries), "x: models/model.json: 'schema_version' is missing");
  entries = pt2_entries();
  entry(entries, kConstants) = "{}";
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: data/constants/model_constants_config.json: 'config' is missing");
  entries = pt2_entries_of_2_7();
  entry(entries, "serialized_exported_program.json") = "[]";
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: serialized_exported_program.json: expected an object, got array");
  entry(entries, "serialized_exported_program.json") = small_model().dump();
  entry(entries, "serialized_state_dict.pt") = "none";
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: serialized_state_dict.pt: neither a zip file nor one of torch.save before PyTorch "
            "1.6, but 4 bytes of something else");
}

// The signature of a program does not need its tensors.
TEST(Pt2FileLayout, HasAGraphThatIsReadAlone) {
  ArchiveEntries whole = pt2_entries(), part;
  for (const auto& item : whole) {
    if (item.first.find("/data/") == std::string::npos) part.push_back(item);
  }
  ASSERT_LT(part.size(), whole.size());
  EXPECT_NE(refusal_of_pt2(part), "nothing was thrown");
  for (const ArchiveEntries& entries : {part, pt2_entries_of_2_7()}) {
    const std::string file = zip_of(entries);
    const auto program = program::parse_pt2_graph(as_bytes(file), "x");
    EXPECT_EQ(program.graph.nodes.size(), 3U);
    const auto signature = program::signature_of(program);
    ASSERT_EQ(signature.inputs.size(), 1U);
    EXPECT_EQ(signature.inputs[0].name, "x");
    EXPECT_EQ(program::type_text(signature.inputs[0]), "float32 [any, 3]");
    ASSERT_EQ(signature.outputs.size(), 1U);
    EXPECT_EQ(signature.outputs[0].name, "0") << "the model returns a tensor, not a dict";
    EXPECT_EQ(program::type_text(signature.outputs[0]), "float32 [any, 3]");
  }
  EXPECT_EQ(message_of<CheckpointError>([] { program::parse_pt2_graph({}, "x"); }),
            "x: not a zip file, expected one of torch.export.save (.pt2)");
}

TEST(Pt2FileLayout, IsLittleEndian) {
  ArchiveEntries entries = pt2_entries();
  entry(entries, "net/byteorder") = "big";
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: the byte order is 'big', expected little; load the file in Python on any machine "
            "and save it on a little-endian one");
  entries.pop_back();
  EXPECT_EQ(refusal_of_pt2(entries), "nothing was thrown") << "no byte order is little";
}

TEST(Pt2FileLayout, IsNotCompressed) {
  std::string file = zip_of(pt2_entries());
  file[file.find("PK\1\2") + 10] = '\x08';  // the method, in the directory and at the entry
  file[file.find("PK\3\4") + 8] = '\x08';
  EXPECT_EQ(refusal_of_pt2(file),
            "x: entry 'net/models/model.json' is compressed, expected it as it is: unpack the file "
            "and pack it again without compression, or write it again by torch.export.save");
}

TEST(Pt2FileLayout, HasChecksums) {
  const std::string whole = zip_of(pt2_entries());
  for (const std::string& content : {scale_bytes(), shift_bytes(), small_model().dump()}) {
    std::string damaged = content;
    damaged[5] ^= 1;
    std::string file = whole;
    file.replace(file.find(content), content.size(), damaged);
    const std::string name = content == scale_bytes()   ? "net/data/weights/weight_0"
                             : content == shift_bytes() ? "net/data/constants/tensor_0"
                                                        : kModel;
    EXPECT_EQ(refusal_of_pt2(file), str("x: entry '", name, "' is damaged: its CRC-32 is ",
                                        torch_file::crc_32(as_bytes(damaged)), ", expected ",
                                        torch_file::crc_32(as_bytes(content))));
  }
  // set_crc32_options(False) of PyTorch writes zeros.
  std::string file = whole;
  for (const auto& [signature, field] : {std::pair("PK\1\2"sv, 16U), std::pair("PK\3\4"sv, 14U)}) {
    for (std::size_t at = file.find(signature); at != std::string::npos;
         at = file.find(signature, at + 1)) {
      file.replace(at + field, 4, 4, '\0');
    }
  }
  const Pt2File parsed = parse_pt2_file(as_bytes(file), "x");
  EXPECT_FALSE(parsed.has_checksums);
  EXPECT_EQ(parsed.state.size(), 2U);
}

TEST(Pt2FileTensors, OfAllTypes) {
  const struct {
    std::int64_t code;
    const char* name;
    std::size_t bytes;
  } types[] = {
      {1, "uint8", 1},
      {2, "int8", 1},
      {3, "int16", 2},
      {4, "int32", 4},
      {5, "int64", 8},
      {6, "float16", 2},
      {7, "float32", 4},
      {8, "float64", 8},
      {9, "complex32", 4},
      {10, "complex64", 8},
      {11, "complex128", 16},
      {12, "bool", 1},
      {13, "bfloat16", 2},
      {28, "uint16", 2},
      {29, "float8_e4m3fn", 1},
      {30, "float8_e5m2", 1},
      {31, "float8_e4m3fnuz", 1},
      {32, "float8_e5m2fnuz", 1},
      {33, "float8_e8m0fnu", 1},
      {34, "uint32", 4},
      {35, "uint64", 8},
  };
  for (const auto& type : types) {
    ArchiveEntries entries =
        with_scale([&](json& payload) { payload["tensor_meta"]["dtype"] = type.code; });
    entry(entries, "net/data/weights/weight_0") = pattern(3 * type.bytes);
    const std::string file = zip_of(entries);
    EXPECT_EQ(parse_pt2_file(as_bytes(file), "x").state.at("scale").dtype.code, type.code);
    entry(entries, "net/data/weights/weight_0") = pattern(3 * type.bytes - 1);
    EXPECT_EQ(refusal_of_pt2(entries), "x: tensor 'scale' reaches beyond its storage of 2 elements")
        << type.name;
    const program::ScalarTypeInfo* info = program::scalar_type_info({type.code});
    ASSERT_NE(info, nullptr) << type.name;
    EXPECT_EQ(info->name, std::string(type.name));
    EXPECT_EQ(info->bytes, type.bytes);
  }
  for (const std::int64_t code : {-1, 0, 14, 27, 36}) {
    EXPECT_EQ(program::scalar_type_info({code}), nullptr) << code;
    EXPECT_EQ(
        refusal_of_pt2(with_scale([&](json& payload) { payload["tensor_meta"]["dtype"] = code; })),
        str("x: tensor 'scale' has the unknown dtype ", code));
  }
}

// The types of files of torch.save.
TEST(Pt2FileTensors, OfAllTypesInFilesOfTorchSave) {
  const std::pair<const char*, std::int64_t> types[] = {
      {"U8", 1},   {"I8", 2},   {"I16", 3},  {"I32", 4},      {"I64", 5},
      {"F16", 6},  {"F32", 7},  {"F64", 8},  {"BOOL", 12},    {"BF16", 13},
      {"U16", 28}, {"U32", 34}, {"U64", 35}, {"F8_E4M3", 29}, {"F8_E5M2", 30},
  };
  const std::string data = pattern(24), mean = mean_bytes();
  for (const auto& [type, code] : types) {
    ArchiveEntries entries = pt2_entries_of_2_8();
    entry(entries, "net/data/weights/model.pt") =
        serialize_torch_file({{"scale", {type, {2}, {1}, 1, as_bytes(data)}},
                              {"mean", {"F32", {3}, {1}, 0, as_bytes(mean)}}});
    const std::string file = zip_of(entries);
    const Pt2File parsed = parse_pt2_file(as_bytes(file), "x");
    EXPECT_EQ(parsed.state.at("scale").dtype.code, code) << type;
    EXPECT_EQ(parsed.state.at("scale").offset, 1);
    EXPECT_EQ(bytes_of(parsed.state.at("scale")), data);
  }
}

TEST(Pt2FileTensors, LieWithinTheirStorage) {
  constexpr std::int64_t large = std::int64_t{1} << 62;
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
  struct Geometry {
    Sizes sizes;
    Sizes strides;
    std::int64_t offset;
  };
  const Geometry inside[] = {
      {{3}, {1}, 0},       {{}, {}, 0},         {{}, {}, 2},         {{2}, {2}, 0},
      {{2}, {1}, 1},       {{5, 3}, {0, 1}, 0}, {{1}, {large}, 2},   {{2, 2}, {1, 1}, 0},
      {{0}, {1}, 0},       {{0}, {1}, 1000},    {{3, 0}, {1, 1}, 0}, {{0, largest}, {0, 0}, 0},
      {{largest}, {0}, 0},
  };
  for (const Geometry& c : inside) {
    const std::string file = zip_of(with_geometry(c.sizes, c.strides, c.offset));
    const Pt2File parsed = parse_pt2_file(as_bytes(file), "x");
    const StoredTensor& tensor = parsed.state.at("scale");
    EXPECT_EQ(tensor.sizes, c.sizes);
    EXPECT_EQ(tensor.strides, c.strides);
    EXPECT_EQ(tensor.offset, c.offset);
  }
  const Geometry outside[] = {
      {{4}, {1}, 0},
      {{3}, {1}, 1},
      {{}, {}, 3},
      {{2}, {3}, 0},
      {{2, 2}, {2, 1}, 0},
      {{1}, {1}, largest},
      {{-1}, {1}, 0},
      {{-1, -3}, {1, 1}, 0},
      {{3}, {-1}, 2},
      {{3}, {1}, -1},
      {{0}, {1}, -1},
      {{3}, {1}, smallest},
      {{smallest}, {1}, 0},
      {{3}, {large}, 0},
      {{5}, {large}, 0},
      {{large}, {4}, 0},
      {{largest}, {largest}, 0},
      {{2}, {1}, largest},
      {{2, 2}, {large, large}, 0},
      {{large, 4}, {0, 0}, 0},
      {{largest, largest}, {0, 0}, 0},
  };
  for (const Geometry& c : outside) {
    EXPECT_EQ(refusal_of_pt2(with_geometry(c.sizes, c.strides, c.offset)),
              "x: tensor 'scale' reaches beyond its storage of 3 elements")
        << c.sizes.size() << " sizes, offset " << c.offset;
  }
}

TEST(Pt2FileTensors, MayShareTheirStorage) {
  ArchiveEntries entries = with_scale([](json& payload) {
    payload["path_name"] = "weight_1";
    payload["tensor_meta"]["sizes"] = numbers_json({2});
    payload["tensor_meta"]["storage_offset"]["as_int"] = 1;
  });
  const std::string file = zip_of(entries);
  const Pt2File parsed = parse_pt2_file(as_bytes(file), "x");
  const StoredTensor& scale = parsed.state.at("scale");
  EXPECT_EQ(scale.storage.data(), parsed.state.at("mean").storage.data());
  EXPECT_EQ(scale.storage.size(), 12U);
  EXPECT_EQ(scale.sizes, Sizes{2});
  EXPECT_EQ(scale.offset, 1);
}

TEST(Pt2FileTensors, AreDescribedCompletely) {
  const struct {
    void (*change)(json& payload);
    const char* message;
  } cases[] = {
      {[](json& payload) { payload["path_name"] = "weight_9"; },
       "the zip file is not one of torch.export.save: it has no 'data/weights/weight_9'"},
      {[](json& payload) { payload["path_name"] = "../../models/model.json"; },
       "the zip file is not one of torch.export.save: it has no "
       "'data/weights/../../models/model.json'"},
      {[](json& payload) { payload["tensor_meta"]["layout"] = 1; },
       "tensor 'scale' is not dense; only dense tensors are supported"},
      {[](json& payload) {
         payload["tensor_meta"]["sizes"][0] = {{"as_expr", {{"expr_str", "s0"}}}};
       },
       "tensor 'scale' has the size s0, expected a number"},
      {[](json& payload) {
         payload["tensor_meta"]["storage_offset"] = {{"as_expr", {{"expr_str", "2*s0"}}}};
       },
       "tensor 'scale' has the size 2*s0, expected a number"},
      {[](json& payload) { payload["tensor_meta"]["strides"].clear(); },
       "data/weights/model_weights_config.json: config.scale.tensor_meta: 1 sizes, but 0 strides"},
      {[](json& payload) { payload["tensor_meta"] = nullptr; },
       "data/weights/model_weights_config.json: config.scale: 'scale' is an object, but only "
       "tensors are supported"},
      {[](json& payload) { payload.erase("use_pickle"); },
       "data/weights/model_weights_config.json: config.scale: 'use_pickle' is missing"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(refusal_of_pt2(with_scale(c.change)), str("x: ", c.message));
  }
}

TEST(Pt2FileTensors, AreThoseOfTheGraph) {
  ArchiveEntries entries = pt2_entries();
  change(entries, kWeights, [](json& config) { config["config"].erase("scale"); });
  EXPECT_EQ(refusal_of_pt2(entries), "x: the tensor 'scale' of the graph is missing in the file");
  entries = pt2_entries();
  change(entries, kConstants, [](json& config) { config["config"].erase("shift"); });
  EXPECT_EQ(refusal_of_pt2(entries), "x: the tensor 'shift' of the graph is missing in the file");
  // A buffer that does not belong to the state dict is a constant.
  entries = pt2_entries();
  const auto forget_mean = [](json& model) {
    model["graph_module"]["signature"]["input_specs"][1]["buffer"]["persistent"] = false;
  };
  change(entries, kModel, forget_mean);
  EXPECT_EQ(refusal_of_pt2(entries), "x: the tensor 'mean' of the graph is missing in the file");
  change(entries, kConstants, [](json& config) {
    json& payload = config["config"]["mean"];
    payload = config["config"]["shift"];
  });
  EXPECT_EQ(refusal_of_pt2(entries), "nothing was thrown");
}

// The file of one tensor, as torch.save(tensor) writes it: 3 elements of 6, every second from the
// second on.
std::string file_of_one_tensor() {
  return pack({.pickle = tensor_pickle("K\6", "K\1", "K\3\x85", "K\2\x85"),
               .storages = {{"0", pattern(24)}}});
}

TEST(Pt2FileTensors, MayBePickled) {
  ArchiveEntries entries = with_scale([](json& payload) { payload["use_pickle"] = true; });
  entry(entries, "net/data/weights/weight_0") = file_of_one_tensor();
  const std::string file = zip_of(entries);
  const Pt2File parsed = parse_pt2_file(as_bytes(file), "x");
  const StoredTensor& scale = parsed.state.at("scale");
  EXPECT_EQ(scale.dtype.code, 7);
  EXPECT_EQ(scale.sizes, Sizes{3});
  EXPECT_EQ(scale.strides, Sizes{2});
  EXPECT_EQ(scale.offset, 1);
  EXPECT_EQ(bytes_of(scale), pattern(24));

  // Tied tensors share the memory of one file.
  change(entries, kWeights, [](json& config) {
    config["config"]["mean"]["use_pickle"] = true;
    config["config"]["mean"]["path_name"] = "weight_0";
  });
  const std::string tied_file = zip_of(entries);
  const Pt2File tied = parse_pt2_file(as_bytes(tied_file), "x");
  EXPECT_EQ(tied.state.at("mean").sizes, Sizes{3});
  EXPECT_EQ(tied.state.at("mean").storage.data(), tied.state.at("scale").storage.data());

  entries = with_scale([](json& payload) { payload["use_pickle"] = true; });
  entry(entries, "net/data/weights/weight_0") = small_torch_file();
  EXPECT_EQ(refusal_of_pt2(entries), "x: tensor 'scale' is not a plain tensor");
  entry(entries, "net/data/weights/weight_0") = scale_bytes();
  EXPECT_EQ(refusal_of_pt2(entries),
            "x: data/weights/weight_0: neither a zip file nor one of torch.save before PyTorch "
            "1.6, but 12 bytes of something else");
  entry(entries, "net/data/weights/weight_0") = pack({.pickle = "\x80\x02"
                                                                "cos\nsystem\n)R."});
  EXPECT_THAT(refusal_of_pt2(entries), ::testing::HasSubstr("the file names os.system"));
}

}  // namespace
}  // namespace lockstep::testing_support
