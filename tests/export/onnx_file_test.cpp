// A model and the file of its large initializers must be replaced together.
#include <lockstep/export/onnx/onnx_file.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
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
