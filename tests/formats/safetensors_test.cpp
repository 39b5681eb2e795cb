#include <lockstep/formats/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing {
namespace {

std::string text_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

// As the reference implementation's `save({"b": ones(2, int16), "a": zeros(1, float32)}, {"k":
// "v"})` writes it, padding included.
TEST(Safetensors, ReadsAFileOfTheReferenceImplementation) {
  const std::string file = safetensors(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"I16","shape":[2],"data_offsets":[4,8]}}     )",
      std::string_view("\0\0\0\0\1\0\1\0", 8));
  const Safetensors parsed = parse_safetensors(as_bytes(file), "x");
  EXPECT_EQ(parsed.metadata, (SafetensorsMetadata{{"k", "v"}}));
  ASSERT_EQ(parsed.tensors.size(), 2U);
  EXPECT_EQ(parsed.tensors.at("b").dtype, "I16");
  EXPECT_EQ(parsed.tensors.at("b").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(text_of(parsed.tensors.at("b")), std::string("\1\0\1\0", 4));
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  const TemporaryDirectory directory;
  const std::string data = pattern(48);
  const TensorViews tensors{
      {"weight", {"F32", {2, 3}, as_bytes(data).first(24)}},
      {"flag \"quoted\"", {"BOOL", {3}, as_bytes(data).subspan(24, 3)}},
      {"scalar", {"I64", {}, as_bytes(data).subspan(27, 8)}},
      {"nothing", {"BF16", {4, 0}, {}}},
  };
  const SafetensorsMetadata metadata{{"epoch", "3"}, {"ümlaut", "\n"}};
  write_safetensors(directory / "x.safetensors", tensors, metadata);

  const MappedFile file(directory / "x.safetensors");
  const Safetensors parsed = parse_safetensors(file.bytes(), "x");
  EXPECT_EQ(parsed.metadata, metadata);
  ASSERT_EQ(parsed.tensors.size(), tensors.size());
  for (const auto& [name, view] : tensors) {
    const TensorView& read = parsed.tensors.at(name);
    EXPECT_EQ(read.dtype, view.dtype);
    EXPECT_EQ(read.shape, view.shape);
    EXPECT_EQ(text_of(read), text_of(view));
    const auto offset = static_cast<std::size_t>(read.bytes.data() - file.bytes().data());
    EXPECT_EQ(offset % safetensors_element_bytes(read.dtype), 0U) << name << " is not aligned";
  }
}

TEST(Safetensors, RefusesWhatIsWrong) {
  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return str(R"({"a":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets,
               "}}");
  };
  struct Case {
    std::string file;
    const char* message;
  };
  const Case cases[] = {
      {"", "truncated safetensors file of 0 bytes"},
      {"1234567", "truncated safetensors file of 7 bytes"},
      {little_endian_64(100) + "{}", "claims 100 bytes, the file holds 2"},
      {little_endian_64(~std::uint64_t{0}) + "{}", "claims 18446744073709551615 bytes"},
      {safetensors(""), "does not begin with '{'"},
      {safetensors(" {}"), "does not begin with '{'"},
      {safetensors("{"), "not valid JSON"},
      {safetensors("{} {}"), "not valid JSON"},
      {safetensors("{\"\xff\":{}}"), "not valid JSON"},
      {safetensors(R"({"a":[[[[[[]]]]]]})"), "nested too deeply"},
      {safetensors(R"({"a":1})"), "tensor 'a' needs exactly dtype, shape and data_offsets"},
      {safetensors(R"({"a":{"dtype":"F32","shape":[]}})"), "needs exactly"},
      {safetensors(tensor("F33", "[1]", "[0,4]"), "1234"), "unknown dtype 'F33'"},
      {safetensors(tensor("F32", "[-1]", "[0,4]"), "1234"), "something else than whole numbers"},
      {safetensors(tensor("F32", "[1.0]", "[0,4]"), "1234"), "something else than whole numbers"},
      {safetensors(tensor("F32", "1", "[0,4]"), "1234"), "shape is not a list"},
      {safetensors(tensor("F32", "[1]", "[0]"), "1234"), "data_offsets outside"},
      {safetensors(tensor("F32", "[1]", "[4,0]"), "1234"), "data_offsets outside"},
      {safetensors(tensor("F32", "[1]", "[1,5]"), "1234"), "data_offsets outside of the 4 bytes"},
      {safetensors(tensor("F32", "[2]", "[0,4]"), "1234"),
       "holds 4 bytes, its shape and dtype ask for 8"},
      {safetensors(tensor("F32", "[4294967296,4294967296]", "[0,0]")), "more than memory can hold"},
      {safetensors(tensor("U8", "[2]", "[1,3]"), "123"), "overlap or leave a hole at byte 0"},
      {safetensors(tensor("U8", "[2]", "[0,2]"), "123"),
       "end at byte 2 of the data, the file at 3"},
      {safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                   "123"),
       "overlap or leave a hole at byte 1"},
      {safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                   "1"),
       "repeats 'a'"},
      {safetensors(R"({"__metadata__":{"a":1}})"), "__metadata__ 'a' is not a string"},
      {safetensors(R"({"__metadata__":"a"})"), "__metadata__ is not an object"},
  };
  for (const Case& c : cases) {
    try {
      parse_safetensors(as_bytes(c.file), "x");
      ADD_FAILURE() << "accepted what should say: " << c.message;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::StartsWith("x: "), ::testing::HasSubstr(c.message)));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Safetensors, DoesNotWriteWhatItWouldNotRead) {
  const std::string data = pattern(8);
  const std::pair<const char*, TensorView> cases[] = {
      {"a", {"F32", {1}, as_bytes(data)}},      {"a", {"F33", {2}, as_bytes(data)}},
      {"a", {"F32", {-1, -2}, as_bytes(data)}}, {"__metadata__", {"F32", {2}, as_bytes(data)}},
      {"\xff", {"F32", {2}, as_bytes(data)}},
  };
  for (const auto& [name, view] : cases) {
    EXPECT_THROW(serialize_safetensors({{name, view}}), CheckpointError)
        << name << " " << view.dtype;
  }
}

}  // namespace
}  // namespace lockstep::testing
