#include <lockstep/formats/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

std::string text_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

// The bytes that the reference implementation writes for `save({"b": ones(2, int16), "a": zeros(1,
// float32)}, {"k": "v"})`, padding included.
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
      {little_endian_64(100) + "{}",
       "x: the safetensors header claims 100 bytes, the file holds 2 after its length (truncated, "
       "or not a safetensors file)"},
      {little_endian_64(3) + "{}", "claims 3 bytes, the file holds 2 after its length"},
      {little_endian_64(100'000'000) + "{}", "claims 100000000 bytes, the file holds 2 after"},
      {little_endian_64(100'000'001) + "{}", "is something else, or damaged, not a file of"},
      {little_endian_64(~std::uint64_t{0}) + "{}", "is something else, or damaged, not a file of"},
      {"\xff\xd8\xff\xe0 a photograph",
       "is a JPEG image, not a file of weights (.safetensors, .pt, .pth)"},
      {"\x89PNG\r\n\x1a\n", "is a PNG image, not a file of weights"},
      {"\x08\x0a\x12\x08lockstep", "is an ONNX model, not a file of weights"},
      {"\x08\x1f\x12\x08lockstep", "is an ONNX model, not a file of weights"},
      {"\x08\x20\x12\x08lockstep", "is something else, or damaged, not a file of weights"},
      {"\x08\x0a\x13\x08lockstep", "is something else, or damaged, not a file of weights"},
      {"\x09\x0a\x12\x08lockstep", "is something else, or damaged, not a file of weights"},
      {"\xff\xd8\xfe\xe0 a photograph", "is something else, or damaged, not a file of weights"},
      {"\x89PNG\r\r\x1a\n", "is something else, or damaged, not a file of weights"},
      {safetensors(""), "does not begin with '{'"},
      {safetensors(" {}"), "does not begin with '{'"},
      {safetensors("{"), "not valid JSON"},
      {safetensors("{} {}"), "not valid JSON"},
      {safetensors("{\"\xff\":{}}"), "not valid JSON"},
      {safetensors(R"({"a":[[[[[[]]]]]]})"), "nested too deeply"},
      {safetensors(R"({"a":1})"), "tensor 'a' needs exactly dtype, shape and data_offsets"},
      {safetensors(R"({"a":{"dtype":"F32","shape":[]}})"), "needs exactly"},
      {safetensors(tensor("F33", "[1]", "[0,4]"), "1234"),
       "x: tensor 'a' has the unknown dtype 'F33'"},
      {safetensors(tensor("F32", "[-1]", "[0,4]"), "1234"), "something else than whole numbers"},
      {safetensors(tensor("F32", "[1.0]", "[0,4]"), "1234"), "something else than whole numbers"},
      {safetensors(R"({"a":{"dtype":1,"shape":[],"data_offsets":[0,0]}})"), "needs exactly"},
      {safetensors(R"({"a":{"dtype":"U8","shape":[],"offsets":[0,1]}})", "1"), "needs exactly"},
      {safetensors(R"({"a":{"type":"U8","shape":[],"data_offsets":[0,1]}})", "1"), "needs exactly"},
      {safetensors(tensor("F32", "[\"1\"]", "[0,4]"), "1234"), "something else than whole numbers"},
      {safetensors(tensor("U8", "[9223372036854775808,0]", "[0,0]")),
       "shape holds something else than whole numbers from 0"},
      {safetensors(tensor("U8", "[0]", "[0,9223372036854775808]")),
       "data_offsets holds something else than whole numbers from 0"},
      {safetensors(tensor("F32", "[1]", "[0,4,8]"), "1234"), "data_offsets outside"},
      {safetensors(tensor("F32", "1", "[0,4]"), "1234"), "shape is not a list"},
      {safetensors(tensor("F32", "[1]", "[0]"), "1234"), "data_offsets outside"},
      {safetensors(tensor("F32", "[1]", "[4,0]"), "1234"), "data_offsets outside"},
      {safetensors(tensor("F32", "[1]", "[1,5]"), "1234"), "data_offsets outside of the 4 bytes"},
      {safetensors(tensor("F32", "[2]", "[0,4]"), "1234"),
       "holds 4 bytes, its shape and dtype ask for 8"},
      {safetensors(tensor("F32", "[4294967296,4294967296]", "[0,0]")), "more than memory can hold"},
      {safetensors(tensor("U8", "[2]", "[1,3]"), "123"), "overlap or leave a hole at byte 0"},
      {safetensors(tensor("U8", "[2]", "[0,2]"), "123"),
       "x: the tensors end at byte 2 of the data, the file at 3"},
      {safetensors("{}", "1"), "x: the tensors end at byte 0 of the data, the file at 1"},
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

// The largest side that a tensor can have, where another side makes it empty.
TEST(Safetensors, ReadsTheLargestSide) {
  const std::string file =
      safetensors(R"({"a":{"dtype":"U8","shape":[9223372036854775807,0],"data_offsets":[0,0]}})");
  EXPECT_EQ(parse_safetensors(as_bytes(file), "x").tensors.at("a").shape,
            (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(), 0}));
}

TEST(Safetensors, KnowsTheSizeOfEachType) {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2},
      {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
      {"I64", 8},  {"U64", 8}, {"F64", 8},  {"C64", 8}};
  const std::string data = pattern(24);
  for (const auto& [dtype, bytes] : sizes) {
    const TensorViews tensors{{"a", {dtype, {3}, as_bytes(data).first(3 * bytes)}}};
    const std::string file = serialize_safetensors(tensors);
    const Safetensors parsed = parse_safetensors(as_bytes(file), "x");
    EXPECT_EQ(parsed.tensors.at("a").dtype, dtype);
    EXPECT_EQ(text_of(parsed.tensors.at("a")), data.substr(0, 3 * bytes)) << dtype;
    const TensorViews short_of_one{{"a", {dtype, {3}, as_bytes(data).first(3 * bytes - 1)}}};
    EXPECT_THROW(serialize_safetensors(short_of_one), CheckpointError) << dtype;
  }
  for (const char* none : {"C128", "F4", "", "f32"}) {
    EXPECT_EQ(safetensors_element_bytes(none), 0U) << none;
  }
}

// A file of serialize_safetensors(): three tensors of different types, an empty one, and metadata.
std::string small_file() {
  static const std::string data = pattern(40);
  return serialize_safetensors({{"weight", {"F32", {2, 3}, as_bytes(data).first(24)}},
                                {"flag", {"BOOL", {3}, as_bytes(data).subspan(24, 3)}},
                                {"steps", {"I64", {}, as_bytes(data).subspan(27, 8)}},
                                {"nothing", {"BF16", {4, 0}, {}}}},
                               {{"epoch", "3"}, {"lr", "0.1"}});
}

bool same_content(const Safetensors& a, const Safetensors& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, view] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.dtype != view.dtype ||
        other->second.shape != view.shape || text_of(other->second) != text_of(view)) {
      return false;
    }
  }
  return true;
}

// Damage to a blank in the header may leave the content unchanged. All other damage must be
// detected.
void expect_refused_or_unchanged(const std::string& damaged, const Safetensors& whole,
                                 const std::string& what) {
  try {
    const Safetensors read = parse_safetensors(as_bytes(damaged), "x");
    EXPECT_TRUE(read.has_checksums && same_content(read, whole)) << what << " went unnoticed";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << what;
  }
}

TEST(Safetensors, NoFlippedBitGoesUnnoticed) {
  const std::string file = small_file();
  const Safetensors whole = parse_safetensors(as_bytes(file), "x");
  EXPECT_TRUE(whole.has_checksums);
  EXPECT_EQ(whole.metadata, (SafetensorsMetadata{{"epoch", "3"}, {"lr", "0.1"}}));
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    expect_refused_or_unchanged(damaged, whole, str("bit ", bit));
  }
}

TEST(Safetensors, NoZeroedPieceGoesUnnoticed) {
  const std::string file = small_file();
  const Safetensors whole = parse_safetensors(as_bytes(file), "x");
  for (const std::size_t length :
       {std::size_t{2}, std::size_t{9}, std::size_t{64}, std::size_t{4096}}) {
    for (std::size_t begin = 0; begin + 2 <= file.size(); ++begin) {
      std::string damaged = file;
      const std::size_t count = std::min(length, file.size() - begin);
      damaged.replace(begin, count, count, '\0');
      if (damaged == file) continue;  // the tensor holds zeros here
      expect_refused_or_unchanged(damaged, whole, str(count, " zeros at ", begin));
    }
  }
}

TEST(Safetensors, NamesWhatIsDamaged) {
  const auto message_of_damage = [](std::size_t at) {
    std::string damaged = small_file();
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    try {
      parse_safetensors(as_bytes(damaged), "x");
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::string file = small_file();
  const Safetensors whole = parse_safetensors(as_bytes(file), "x");
  const auto* begin = as_bytes(file).data();
  const auto offset = static_cast<std::size_t>(whole.tensors.at("weight").bytes.data() - begin);
  EXPECT_THAT(message_of_damage(offset + 5),
              ::testing::MatchesRegex("x: the tensor 'weight' is damaged: its checksum is "
                                      "[0-9a-f]{16}, expected [0-9a-f]{16}"));
  EXPECT_THAT(message_of_damage(file.find("\"0.1\"") + 1),
              ::testing::HasSubstr("x: the header is damaged: its checksum is "));
  EXPECT_THAT(message_of_damage(file.find("xxh3_64\"") + 1),
              ::testing::HasSubstr("x: the header has no checksum, but other parts of the file"));
}

// A rewrite by Python's reader and writer may change the order, the blanks and the spelling of
// letters.
TEST(Safetensors, AHeaderThatWasWrittenAnewKeepsItsChecksum) {
  const std::string data = pattern(4);
  const std::string file =
      serialize_safetensors({{"gewicht\u00e4", {"U8", {4}, as_bytes(data)}}}, {{"a", "\n"}});
  const std::size_t header = as_bytes(file).size() - 4 - 8;
  const auto checksum_of = [&](const std::string& key) {
    return file.substr(file.find(key + "\":\"") + key.size() + 3, 16);
  };
  const std::string again =
      str("{ \"gewicht\\u00e4\": {\"shape\":[4], \"dtype\":\"U8\", \"data_offsets\":[0,4]},\n",
          "\"__metadata__\":{\"lockstep.xxh3_64\":\"", checksum_of("lockstep.xxh3_64"),
          "\",\"a\":\"\\u000a\",", "\"lockstep.xxh3_64:gewicht\u00e4\":\"",
          checksum_of("lockstep.xxh3_64:gewicht\u00e4"), "\"}}");
  const std::string rewritten = safetensors(again, std::string_view(file).substr(8 + header));
  const Safetensors read = parse_safetensors(as_bytes(rewritten), "x");
  EXPECT_TRUE(read.has_checksums);
  EXPECT_EQ(text_of(read.tensors.at("gewicht\u00e4")), data);
}

// The memory of a file with a header of `header_bytes`, without a file of that size.
class LargeFile {
 public:
  explicit LargeFile(std::uint64_t header_bytes) : size_(header_bytes + 16) {
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const std::string begin = little_endian_64(header_bytes) + "{";
    std::memcpy(memory_, begin.data(), begin.size());
  }
  ~LargeFile() { munmap(memory_, size_); }
  LargeFile(const LargeFile&) = delete;
  LargeFile& operator=(const LargeFile&) = delete;
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(memory_), size_};
  }

 private:
  std::size_t size_;
  void* memory_;
};

TEST(Safetensors, BoundsTheHeader) {
  const auto message_of_header = [](std::uint64_t header_bytes) {
    const LargeFile file(header_bytes);
    try {
      parse_safetensors(file.bytes(), "x");
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message_of_header(100'000'001),
            "x: the safetensors header has 100000001 bytes, the format allows at most 100000000");
  EXPECT_THAT(message_of_header(100'000'000), ::testing::HasSubstr("is not valid JSON"));
  EXPECT_THROW(serialize_safetensors({}, {{"a", std::string(100'000'000, 'x')}}), CheckpointError);
}

// Address space for a file of more than 4 GiB, whose first tensor consists of untouched zeros.
TEST(Safetensors, ReadsMoreThan32Bits) {
  constexpr std::size_t kLarge = (std::size_t{1} << 32) + 8;
  const std::string head =
      safetensors(R"({"large":{"dtype":"F32","shape":[2,536870913],"data_offsets":[0,4294967304]},)"
                  R"("small":{"dtype":"U8","shape":[3],"data_offsets":[4294967304,4294967307]}})");
  const std::size_t size = head.size() + kLarge + 3;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "needs 4 GiB of address space";
  auto* bytes = static_cast<std::byte*>(memory);
  std::memcpy(bytes, head.data(), head.size());
  std::memcpy(bytes + head.size() + kLarge, "end", 3);
  const Safetensors file = parse_safetensors({bytes, size}, "x");
  EXPECT_EQ(file.tensors.at("large").bytes.size(), kLarge);
  EXPECT_EQ(file.tensors.at("large").shape, (std::vector<std::int64_t>{2, 536'870'913}));
  const auto small = file.tensors.at("small").bytes;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(small.data()), small.size()), "end");
  EXPECT_THAT(message_of<CheckpointError>([&] { parse_safetensors({bytes, size - 1}, "x"); }),
              ::testing::HasSubstr("data_offsets outside of the 4294967306 bytes of data"));
  munmap(memory, size);
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
  for (const char* key : {"lockstep.xxh3_64", "lockstep.xxh3_64:a"}) {
    EXPECT_THROW(serialize_safetensors({}, {{key, "0"}}), CheckpointError) << key;
  }
}

TEST(Safetensors, SaysWhatItCannotWrite) {
  const std::string data = pattern(8);
  const TensorViews none{};
  const struct {
    TensorViews tensors;
    SafetensorsMetadata metadata;
    const char* message;
  } cases[] = {
      {{{"a", {"F32", {1}, as_bytes(data)}}},
       {},
       "cannot write tensor 'a': 8 bytes of dtype 'F32', expected 4"},
      {{{"a", {"F33", {2}, as_bytes(data)}}},
       {},
       "cannot write tensor 'a': 8 bytes of dtype 'F33', expected 0"},
      // A product of these sides as numbers without a sign would be the size.
      {{{"a", {"U8", {-1, 0}, {}}}},
       {},
       "cannot write tensor 'a': 0 bytes of dtype 'U8', expected 0"},
      {{{"a", {"U8", {-1}, as_bytes(data)}}},
       {},
       "cannot write tensor 'a': 8 bytes of dtype 'U8', expected 0"},
      {{{"a", {"F64", {std::int64_t{1} << 61}, {}}}},
       {},
       "cannot write tensor 'a': 0 bytes of dtype 'F64', expected 0"},
      {{{"__metadata__", {"F32", {2}, as_bytes(data)}}},
       {},
       "cannot write tensor '__metadata__': 8 bytes of dtype 'F32', expected 8"},
      {none,
       {{"lockstep.xxh3_64", "0"}},
       "cannot write safetensors: the metadata 'lockstep.xxh3_64' has the name of a checksum; give "
       "it another"},
      {none, {{"a", "\xff"}}, "cannot write safetensors: a name or metadata is not UTF-8 ("},
      {{{"\xff", {"F32", {2}, as_bytes(data)}}},
       {},
       "cannot write safetensors: a name or metadata is not UTF-8 ("},
  };
  for (const auto& c : cases) {
    try {
      serialize_safetensors(c.tensors, c.metadata);
      ADD_FAILURE() << "wrote what should say: " << c.message;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(c.message));
    }
  }
}

TEST(Safetensors, LeavesTheFileBeforeWhereItCannotWrite) {
  const TemporaryDirectory directory;
  directory.write("x.safetensors", "before");
  EXPECT_THROW(write_safetensors(directory / "x.safetensors", {}, {{"a", "\xff"}}),
               CheckpointError);
  EXPECT_EQ(read_text(directory / "x.safetensors"), "before");
  EXPECT_EQ(directory.names(), std::vector<std::string>{"x.safetensors"});
  EXPECT_THROW(write_safetensors(directory / "none" / "x.safetensors", {}), DataError);
}

// Tensors without elements take no room, wherever they are named as beginning.
TEST(Safetensors, ReadsEmptyTensorsBetweenOthers) {
  const std::string file = safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                       R"("b":{"dtype":"F64","shape":[3,0],"data_offsets":[2,2]},)"
                                       R"("c":{"dtype":"U8","shape":[],"data_offsets":[2,3]},)"
                                       R"("d":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})",
                                       "123");
  const Safetensors parsed = parse_safetensors(as_bytes(file), "x");
  EXPECT_EQ(text_of(parsed.tensors.at("a")), "12");
  EXPECT_EQ(text_of(parsed.tensors.at("b")), "");
  EXPECT_EQ(parsed.tensors.at("b").shape, (std::vector<std::int64_t>{3, 0}));
  EXPECT_EQ(text_of(parsed.tensors.at("c")), "3");
  EXPECT_FALSE(parsed.has_checksums);
}

}  // namespace
}  // namespace lockstep::testing_support
