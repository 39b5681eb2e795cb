// A model and the file of its large initializers must be replaced together.
#include <lockstep/export/onnx/onnx_file.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/export/onnx_reader.h>
#include <tests/support/file_size_limit.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using testing_support::FileSizeLimit;
using testing_support::read_model;
using testing_support::read_text;

constexpr std::size_t kDataBytes = 8192;  // size of the one external initializer
constexpr rlim_t kBytesBetween = 50'000;  // more than the external data, less than the model

onnx::TensorData filled_tensor(const std::string& name, std::size_t bytes, char value) {
  const auto content = std::make_shared<const std::string>(bytes, value);
  return {.name = name,
          .type = onnx::ElementType::kUint8,
          .sizes = {static_cast<std::int64_t>(bytes)},
          .bytes = testing_support::as_bytes(*content),
          .owner = content};
}

// A model of 100 KB, not counting the external initializer "large".
onnx::Model model_of(char value) {
  onnx::Model model;
  for (int i = 0; i < 100; ++i) {
    model.graph.initializers.push_back(filled_tensor("small_" + std::to_string(i), 1000, value));
  }
  model.graph.initializers.push_back(filled_tensor("large", kDataBytes, value));
  return model;
}

class OnnxFile : public ::testing::Test {
 protected:
  onnx::WrittenModel write(char value) const {
    return onnx::write_model(path, model_of(value), /*most_bytes=*/4096);
  }
  // The external values, which are all equal.
  std::string values_outside() const {
    std::string data = read_text(folder / read_model(path).locations.at("large"));
    EXPECT_EQ(data.size(), kDataBytes);
    data.erase(std::unique(data.begin(), data.end()), data.end());
    return data;
  }

  testing_support::TemporaryDirectory folder;
  const std::filesystem::path path = folder / "net.onnx";
};

TEST_F(OnnxFile, ReplacesTheModelWithItsData) {
  const std::filesystem::path first = write('a').data;
  EXPECT_EQ(values_outside(), "a");
  const std::filesystem::path second = write('b').data;
  EXPECT_NE(first, second);
  EXPECT_EQ(values_outside(), "b");
  EXPECT_THAT(folder.names(), ElementsAre("net.onnx", second.filename().string()));
  EXPECT_EQ(write('b').data, second) << "the name follows from the content";
  EXPECT_EQ(values_outside(), "b");
}

TEST_F(OnnxFile, KeepsTheOldModelWithItsDataOnAFullDisk) {
  write('a');
  {
    const FileSizeLimit limit(kBytesBetween);
    EXPECT_THROW(write('b'), DataError);
  }
  EXPECT_EQ(values_outside(), "a");
  EXPECT_THAT(folder.names(), SizeIs(3)) << "the new data has its name already";
  write('c');
  EXPECT_EQ(values_outside(), "c");
  EXPECT_THAT(folder.names(), SizeIs(2));
}

// The kernel kills a process whose file exceeds the limit, while it writes the external data or the
// model.
TEST_F(OnnxFile, KeepsTheOldModelWithItsDataWhenTheProcessIsKilled) {
  for (const rlim_t bytes : {rlim_t{kDataBytes / 2}, kBytesBetween}) {
    write('a');
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const rlimit no_core{};
      setrlimit(RLIMIT_CORE, &no_core);
      const FileSizeLimit limit(bytes);
      std::signal(SIGXFSZ, SIG_DFL);
      write('b');
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
    EXPECT_EQ(values_outside(), "a");
    EXPECT_GT(folder.names().size(), 2U) << "the killed process left something";
    const std::filesystem::path data = write('c').data;
    EXPECT_EQ(values_outside(), "c");
    EXPECT_THAT(folder.names(), ElementsAre("net.onnx", data.filename().string()));
  }
}

// Strings of protobuf must be UTF-8, but names of files and modules need not be.
TEST_F(OnnxFile, HoldsNamesOfAnyBytesAsText) {
  const std::filesystem::path odd = folder / "n\xe9t.onnx";
  onnx::Model model = model_of('a');
  model.metadata["\xff"] = "\xfe";
  model.graph.initializers.front().name = "caf\xe9.weight";
  onnx::OnnxNode node;
  node.op_type = "Identity";
  node.name = "caf\xe9";
  node.inputs = {"caf\xe9.weight"};
  node.outputs = {"y\xff"};
  model.graph.nodes.push_back(node);
  onnx::write_model(odd, model, /*most_bytes=*/4096);
  const testing_support::ReadModel read = read_model(odd);
  EXPECT_TRUE(read.initializers.contains("caf\\xe9.weight"));
  EXPECT_TRUE(read.unknown_inputs.empty()) << "the node's input is that initializer";
  const std::string location = read.locations.at("large");
  EXPECT_TRUE(location.starts_with("n\\xe9t.onnx.")) << location;
  EXPECT_EQ(read_text(folder / location).size(), kDataBytes);
  onnx::write_model(odd, model_of('b'), /*most_bytes=*/4096);
  EXPECT_THAT(folder.names(), SizeIs(2)) << "the former data are removed";
}

// Bytes that are divided in another way are other data: a reader finds its tensors by offsets.
TEST_F(OnnxFile, NamesItsDataAfterTheSizesOfTheTensors) {
  std::vector<std::string> names;
  for (const std::size_t first : {std::size_t{4096}, std::size_t{8192}}) {
    onnx::Model model;
    model.graph.initializers = {filled_tensor("a", first, 'x'),
                                filled_tensor("b", 12'288 - first, 'x')};
    names.push_back(onnx::write_model(path, model, /*most_bytes=*/4096).data.filename().string());
  }
  EXPECT_NE(names[0], names[1]);
}

// External tensors have at least 1024 bytes and begin at multiples of 4096.
TEST_F(OnnxFile, AlignsTheTensorsOutsideAndKeepsSmallOnesInside) {
  onnx::Model model;
  model.graph.initializers = {filled_tensor("a", 1024, 'a'), filled_tensor("small", 1023, 's'),
                              filled_tensor("b", 4096, 'b'), filled_tensor("c", 5000, 'c')};
  constexpr std::int64_t kAll = 1024 + 1023 + 4096 + 5000;
  EXPECT_TRUE(onnx::write_model(path, model, kAll).data.empty()) << "as many as may be inside";
  EXPECT_EQ(read_model(path).values.at("c"), std::string(5000, 'c'));
  const onnx::WrittenModel written = onnx::write_model(path, model, kAll - 1);
  const std::string data = read_text(written.data);
  ASSERT_EQ(data.size(), 8192U + 5000U);
  EXPECT_EQ(data.substr(0, 1024), std::string(1024, 'a'));
  EXPECT_EQ(data.substr(1024, 3072), std::string(3072, '\0'));
  EXPECT_EQ(data.substr(4096, 4096), std::string(4096, 'b'));
  EXPECT_EQ(data.substr(8192), std::string(5000, 'c'));
  const testing_support::ReadModel read = read_model(path);
  EXPECT_THAT(read.locations, SizeIs(3));
  EXPECT_EQ(read.values.at("small"), std::string(1023, 's'));
  EXPECT_EQ(read.values.at("a"), "");
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(std::filesystem::file_size(path) +
                                                     std::filesystem::file_size(written.data)));
}

// "name type: values" of an AttributeProto.
std::string attribute_text(protozero::pbf_reader attribute) {
  std::string name, type, values;
  while (attribute.next()) {
    switch (attribute.tag()) {
      case 1:
        name = attribute.get_string();
        break;
      case 2:
      case 7:
        values += str(' ', attribute.get_float());
        break;
      case 3:
      case 8:
        values += str(' ', attribute.get_int64());
        break;
      case 4:
      case 9:
        values += ' ' + attribute.get_string();
        break;
      case 5: {
        testing_support::ReadModel inner;
        testing_support::read_initializer(attribute.get_message(), inner);
        for (const auto& [tensor, bytes] : inner.values) values += ' ' + tensor + '=' + bytes;
        break;
      }
      case 20:
        type = std::to_string(attribute.get_enum());
        break;
      default:
        attribute.skip();
    }
  }
  return name + ' ' + type + ':' + values;
}

// The types are those of AttributeProto.AttributeType in onnx.proto.
TEST_F(OnnxFile, HoldsAttributesOfEveryKind) {
  onnx::OnnxNode node;
  node.op_type = "Any";
  node.attributes = {{"float", 0.5F},
                     {"int", -3},
                     {"text", "linear"},
                     {"tensor", filled_tensor("t", 2, 'x')},
                     {"floats", std::vector<float>{1.5F, -2}},
                     {"ints", std::vector<std::int64_t>{4, -5}},
                     {"texts", std::vector<std::string>{"a", "b"}}};
  onnx::Model model;
  model.graph.nodes = {node};
  onnx::write_model(path, model);
  const std::string content = read_text(path);
  protozero::pbf_reader reader(content);
  ASSERT_TRUE(reader.next(7));
  protozero::pbf_reader graph = reader.get_message();
  ASSERT_TRUE(graph.next(1));
  protozero::pbf_reader read = graph.get_message();
  std::vector<std::string> attributes;
  while (read.next(5)) attributes.push_back(attribute_text(read.get_message()));
  EXPECT_THAT(attributes,
              ElementsAre("float 1: 0.5", "int 2: -3", "text 3: linear", "tensor 4: t=xx",
                          "floats 6: 1.5 -2", "ints 7: 4 -5", "texts 8: a b"));
}

TEST_F(OnnxFile, RemovesOnlyTheDataOfItsOwnModels) {
  for (const char* name : {"net.onnx.data", "net.onnx.0123.data", "net.onnx.0123456789abcdeX.data",
                           "other.onnx.0123456789abcdef.data"}) {
    folder.write(name, "precious");
  }
  const std::vector<std::string> others = folder.names();
  write('a');
  onnx::write_model(path, model_of('b'));  // has no external data
  EXPECT_TRUE(read_model(path).locations.empty());
  std::vector<std::string> expected = others;
  expected.push_back("net.onnx");
  EXPECT_THAT(folder.names(), ::testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace lockstep
