#include <lockstep/formats/torch_file.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <lockstep/formats/torch_file/zip_records.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string storage_text(const TorchTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.storage.data()), tensor.storage.size()};
}

std::vector<std::string> names_of(const TorchFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.push_back(name);
  return names;
}

std::string message_of_torch_file(const std::string& file) {
  try {
    parse_torch_file(as_bytes(file), "x");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TorchArchive python_archive() {
  return {.pickle = python_state_pickle(), .storages = {{"0", pattern(24)}}};
}

void expect_pythons_tensors(const TorchFile& file) {
  ASSERT_THAT(names_of(file), ElementsAre("a", "b"));
  const TorchTensor& a = file.tensors[0].second;
  const TorchTensor& b = file.tensors[1].second;
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_THAT(a.strides, ElementsAre(3, 1));
  EXPECT_EQ(storage_text(a), pattern(24));
  EXPECT_THAT(b.shape, ElementsAre(3, 2));
  EXPECT_THAT(b.strides, ElementsAre(1, 3));
  EXPECT_EQ(b.storage.data(), a.storage.data());
}

TEST(TorchFile, ReadsAStateDictOfPython) {
  const std::string file = pack(python_archive());
  EXPECT_TRUE(is_torch_file(as_bytes(file)));
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  EXPECT_TRUE(parsed.has_checksums);
  expect_pythons_tensors(parsed);
}

// Versions before 2.1 do not say that the bytes are little-endian.
TEST(TorchFile, ReadsAStateDictOfAnyVersionOfTheFormat) {
  TorchArchive archive = python_archive();
  archive.byteorder.clear();
  for (const char* version : {"1", "3\n", "10"}) {
    archive.version = version;
    expect_pythons_tensors(parse_torch_file(as_bytes(pack(archive)), "x"));
  }
}

TEST(TorchFile, ReadsTheFormatBeforePyTorch16) {
  const std::string file = legacy_torch_file();
  EXPECT_TRUE(is_torch_file(as_bytes(file)));
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  EXPECT_FALSE(parsed.has_checksums);
  expect_pythons_tensors(parsed);
}

// {"model": {...}, "epoch": 3, "moments": [tensor, (tensor,)], 7: tensor}
TEST(TorchFile, JoinsTheKeysThatLeadToATensor) {
  const std::string tensor = tensor_pickle("K\6", "K\1", "K\2\x85", "K\1\x85").substr(2);
  const std::string value = tensor.substr(0, tensor.size() - 1);
  const std::string file =
      pack({.pickle = str("\x80\x02}(", pickled_text("model"), "}", pickled_text("fc.weight"),
                          value, "s", pickled_text("epoch"), "K\3", pickled_text("moments"), "](",
                          value, value, "\x85", "e", "K\7", value, "u."),
            .storages = {{"0", pattern(24)}}});
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  EXPECT_THAT(names_of(parsed), ElementsAre("model.fc.weight", "moments.0", "moments.1.0", "7"));
  const auto& content = std::get<PickleDict>(parsed.content->content);
  EXPECT_EQ(std::get<std::int64_t>(content.find("epoch")->content), 3);
}

TEST(TorchFile, ReadsBackWhatItWrites) {
  const TemporaryDirectory directory;
  const std::string file = small_torch_file();
  const TorchFile first = parse_torch_file(as_bytes(file), "x");
  write_torch_file(directory / "x.pt", first.tensors);
  EXPECT_EQ(read_text(directory / "x.pt"), file);
  EXPECT_THAT(directory.names(), ElementsAre("x.pt"));

  EXPECT_THAT(names_of(first),
              ElementsAre("weight", "weight_t", "steps", "flags", "nothing", "tiny", "row"));
  const auto& [name, row] = first.tensors[6];
  EXPECT_THAT(row.shape, ElementsAre(5, 3));
  EXPECT_THAT(row.strides, ElementsAre(0, 1));
  EXPECT_EQ(row.offset, 3);
  EXPECT_EQ(row.storage.data(), first.tensors[0].second.storage.data());
  EXPECT_EQ(first.tensors[5].second.dtype, "F8_E4M3");
  EXPECT_EQ(first.tensors[4].second.storage.size(), 0U);
  for (const auto& [tensor_name, tensor] : first.tensors) {
    if (tensor.storage.empty()) continue;
    const auto offset = static_cast<std::size_t>(tensor.storage.data() - as_bytes(file).data());
    EXPECT_EQ(offset % 64, 0U) << tensor_name << " is not aligned";
  }
}

TEST(TorchFile, KeepsEveryTypeThatSafetensorsHas) {
  const std::string data = pattern(15 * 16);
  TorchTensors tensors;
  std::size_t at = 0;
  for (const char* dtype : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16",
                            "I32", "U32", "F32", "I64", "U64", "F64"}) {
    const std::size_t bytes = 2 * safetensors_element_bytes(dtype);
    tensors.push_back({dtype, {dtype, {2}, {1}, 0, as_bytes(data).subspan(at, bytes)}});
    at += bytes;
  }
  const std::string file = serialize_torch_file(tensors);
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  ASSERT_EQ(parsed.tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(parsed.tensors[i].first, tensors[i].second.dtype);
    EXPECT_EQ(parsed.tensors[i].second.dtype, tensors[i].second.dtype);
    EXPECT_EQ(storage_text(parsed.tensors[i].second), storage_text(tensors[i].second));
  }
}

TEST(TorchFile, RefusesWhatIsWrong) {
  const auto with = [](auto change) {
    TorchArchive archive = python_archive();
    change(archive);
    return pack(archive);
  };
  const auto tensor = [&](const std::string& elements, const std::string& offset,
                          const std::string& shape, const std::string& strides) {
    return with(
        [&](TorchArchive& a) { a.pickle = tensor_pickle(elements, offset, shape, strides); });
  };
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  const std::string evil =
      "\x80\x02"
      "cposix\nsystem\n" +
      pickled_text("true") + "\x85R.";
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {"", "neither a zip file nor one of torch.save before PyTorch 1.6, but 0 bytes"},
      {"<html>", "but 6 bytes of something else"},
      {pack(python_archive()) + "more", "does not end with its directory"},
      {pack(python_archive()).substr(0, 300), "does not end with its directory"},
      {with([&](TorchArchive& a) { a.pickle = evil; }),
       "x: data.pkl: byte 2: the file names posix.system"},
      {with([](TorchArchive& a) { a.pickle += "more"; }), "4 bytes follow the pickle"},
      {with([](TorchArchive& a) { a.pickle.clear(); }), "it has no 'data.pkl'"},
      {with([](TorchArchive& a) { a.storages.clear(); }), "storage '0' is not in the file"},
      {with([](TorchArchive& a) { a.storages["0"].pop_back(); }),
       "has 23 bytes, the pickle says 6 elements of 4"},
      {with([](TorchArchive& a) { a.storages["0"] += "1234"; }),
       "has 28 bytes, the pickle says 6 elements"},
      {with([](TorchArchive& a) { a.byteorder = "big"; }),
       "the byte order is 'big', expected little"},
      {with([](TorchArchive& a) { a.version = "11"; }),
       "version of its format is '11', expected 1 to 10"},
      {with([](TorchArchive& a) { a.version = "three"; }), "version of its format is 'three'"},
      {with([](TorchArchive& a) { a.version = "0"; }), "'0', expected 1 to 10"},
      {with([](TorchArchive& a) { a.version = "3 "; }), "version of its format is '3 '"},
      {with([](TorchArchive& a) { a.version = "\n"; }), "version of its format is ''"},
      {with([](TorchArchive& a) { a.version.clear(); }), "it has no 'version'"},
      {with([](TorchArchive& a) { a.root = ""; }), "it has no folder"},
      {"PK\3\4PK\5\6" + std::string(12, '\0') + "\4\0\0\0\0\0"s, "it has no folder"},
      {with([](TorchArchive& a) { a.storages["../../constants.pkl"] = "c"; }),
       "nothing was thrown"},
      {tensor("K\6", "K\1", "K\6\x85", "K\1\x85"),
       "tensor '' reaches element 6 of a storage of 6 elements"},
      {tensor("K\6", "K\0"s, "K\2K\2\x86", "K\5K\1\x86"), "reaches element 6"},
      {tensor("K\6", "K\0"s, huge + huge + "\x86", "K\1K\1\x86"),
       "reaches element beyond all memory"},
      {tensor("K\6", "K\0"s, "K\2\x85", huge + "\x85"), "reaches element 9223372036854775807"},
      {tensor("K\5", "K\0"s, "K\1\x85", "K\1\x85"),
       "has 24 bytes, the pickle says 5 elements of 4"},
  };
  for (const auto& c : cases) {
    const std::string message = message_of_torch_file(c.file);
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// Two tensors of shape [count] that repeat one number of a storage of 24 bytes.
std::string two_expanded_tensors(const std::string& count) {
  const std::string tensor = tensor_pickle("K\6", "K\0"s, count + "\x85", "K\0\x85"s).substr(2);
  const std::string value = tensor.substr(0, tensor.size() - 1);
  return pack({.pickle = "\x80\x02](" + value + value + "e.", .storages = {{"0", pattern(24)}}});
}

TEST(TorchFile, BoundsWhatExpandedTensorsAskFor) {
  const auto four_bytes = [](std::uint32_t count) {
    std::string text = "J";
    for (int i = 0; i < 4; ++i) text += static_cast<char>(count >> (8 * i) & 0xff);
    return text;
  };
  // The limit is 64 MiB plus 64 times the storage. Each tensor counts with its bytes beyond the
  // storage.
  const std::uint64_t most = kExpandedBytesOfAnyFile + 24 * kExpandedBytesPerByte;
  const auto half = static_cast<std::uint32_t>(most / 8) + 6;
  const std::string file = two_expanded_tensors(four_bytes(half));
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  ASSERT_EQ(parsed.tensors.size(), 2U);
  EXPECT_THAT(parsed.tensors[1].second.shape, ElementsAre(half));
  const std::string again = serialize_torch_file(parsed.tensors);
  EXPECT_THAT(names_of(parse_torch_file(as_bytes(again), "again")), ElementsAre("0", "1"));

  EXPECT_EQ(
      message_of_torch_file(two_expanded_tensors(four_bytes(half + 1))),
      str("x: tensor '1' has ", half + 1, " elements over a storage of 6: tensors that repeat ",
          "their elements may take at most ", most, " bytes more than their storages"));
  // 2^62 elements, whose size in bytes does not fit into 64 bits.
  EXPECT_THAT(message_of_torch_file(two_expanded_tensors("\x8a\x08\0\0\0\0\0\0\0\x40"s)),
              HasSubstr("x: tensor '0' has 4611686018427387904 elements over a storage of 6"));
}

TEST(TorchFile, RefusesTypesThatItDoesNotRead) {
  std::string pickle = python_state_pickle();
  pickle.replace(pickle.find("FloatStorage"), 12, "ComplexFloatStorage");
  EXPECT_THAT(message_of_torch_file(pack({.pickle = pickle, .storages = {{"0", pattern(48)}}})),
              HasSubstr("storage '0' is a ComplexFloatStorage, which Lockstep does not read"));
  pickle = python_state_pickle();
  pickle.replace(pickle.find("FloatStorage"), 12, "QInt8Storage");
  EXPECT_THAT(message_of_torch_file(pack({.pickle = pickle, .storages = {{"0", pattern(6)}}})),
              HasSubstr("names torch.QInt8Storage"));
  std::string legacy = legacy_torch_file();
  legacy.replace(legacy.find("FloatStorage"), 12, "ComplexFloatStorage");
  EXPECT_EQ(message_of_torch_file(legacy),
            "x: storage '0' is a ComplexFloatStorage, which Lockstep does not read");
}

// Only the third version of a description gives the type of a tensor, and its storage has none.
TEST(TorchFile, RefusesATypeThatIsGivenTwiceOrNotAtAll) {
  const auto refusal = [](const std::string& storage, const std::string& type) {
    std::string pickle = tensor_pickle("K\x18", "K\0"s, "K\1\x85", "K\1\x85");
    pickle.replace(pickle.find("torch\nFloatStorage"), 18, storage);
    if (!type.empty()) {
      pickle.replace(pickle.find("_v2"), 3, "_v3");
      pickle.insert(pickle.size() - 3, "ctorch\n" + type + "\n");
    }
    return message_of_torch_file(pack({.pickle = pickle, .storages = {{"0", pattern(24)}}}));
  };
  const std::string untyped = "torch.storage\nUntypedStorage";
  EXPECT_EQ(refusal(untyped, "uint16"), "nothing was thrown");
  EXPECT_EQ(refusal(untyped, ""),
            "x: tensor '' is of type none over a UntypedStorage, which Lockstep does not read");
  EXPECT_EQ(
      refusal(untyped, "complex64"),
      "x: tensor '' is of type complex64 over a UntypedStorage, which Lockstep does not read");
  EXPECT_EQ(refusal("torch\nByteStorage", "uint8"),
            "x: tensor '' is of type uint8 over a ByteStorage, which Lockstep does not read");
}

TEST(TorchFile, TellsTorchScriptFromWeights) {
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  zip.add("net/data.pkl", "x");
  zip.add("net/code/__torch__.py", "x");
  zip.add("net/constants.pkl", "x");
  zip.add("net/version", "3\n");
  zip.finish();
  EXPECT_THAT(message_of_torch_file(file), HasSubstr("a TorchScript archive"));
}

// All CRC-32s are 0, as after torch.serialization.set_crc32_options(False).
TEST(TorchFile, ReadsAFileWithoutChecksums) {
  std::string file = pack(python_archive());
  for (const char* signature : {"PK\x01\x02", "PK\x03\x04"}) {
    const std::size_t crc = signature[2] == 1 ? 16 : 14;
    for (std::size_t at = file.find(signature); at != std::string::npos;
         at = file.find(signature, at + 1)) {
      file.replace(at + crc, 4, 4, '\0');
    }
  }
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  EXPECT_FALSE(parsed.has_checksums);
  expect_pythons_tensors(parsed);
}

bool same_tensors(const TorchFile& a, const TorchFile& b) {
  if (names_of(a) != names_of(b)) return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const TorchTensor& x = a.tensors[i].second;
    const TorchTensor& y = b.tensors[i].second;
    if (x.dtype != y.dtype || x.shape != y.shape || x.strides != y.strides ||
        x.offset != y.offset || storage_text(x) != storage_text(y)) {
      return false;
    }
  }
  return true;
}

// Damage to a time or to padding may leave the content unchanged. All other damage must be
// detected.
TEST(TorchFile, NoFlippedBitGoesUnnoticed) {
  for (const std::string& file : {small_torch_file(), pack(python_archive())}) {
    const TorchFile whole = parse_torch_file(as_bytes(file), "x");
    int refused = 0;
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      std::string damaged = file;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      try {
        const TorchFile read = parse_torch_file(as_bytes(damaged), "x");
        EXPECT_TRUE(read.has_checksums && same_tensors(read, whole))
            << "bit " << bit << " went unnoticed";
      } catch (const CheckpointError& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "bit " << bit;
      }
    }
    EXPECT_GT(refused, static_cast<int>(file.size()));
  }
}

TEST(TorchFile, DoesNotWriteWhatItWouldNotRead) {
  const std::string data = pattern(32);
  const auto bytes = as_bytes(data);
  const struct {
    TorchTensors tensors;
    const char* message;
  } cases[] = {
      {{{"a", {"F32", {2}, {1}, 0, bytes.first(8)}}, {"a", {"F32", {2}, {1}, 0, bytes.first(8)}}},
       "cannot write two tensors called 'a'"},
      {{{"a", {"F32", {2}, {1}, 0, bytes.first(8)}}, {"b", {"I32", {2}, {1}, 0, bytes.first(8)}}},
       "'b' of type I32: it shares its memory with 'a' of type F32"},
      {{{"a", {"C64", {1}, {1}, 0, bytes.first(8)}}}, "it has the type 'C64'"},
      {{{"a", {"F32", {3}, {1}, 0, bytes.first(8)}}},
       "it reaches element 2 of a storage of 2 elements"},
      {{{"a", {"F32", {1}, {1}, 0, bytes.first(7)}}}, "it has a storage of 7 bytes"},
      {{{"a", {"F32", {1}, {}, 0, bytes.first(8)}}}, "it has 1 sizes and 0 strides"},
      {{{"a", {"F32", {1}, {-1}, 0, bytes.first(8)}}}, "it has a size or stride below 0"},
      {{{"a", {"F32", {1}, {1}, -1, bytes.first(8)}}}, "it begins at element -1"},
      {{{"\xff", {"F32", {1}, {1}, 0, bytes.first(8)}}}, "it has a name that is not UTF-8"},
      {{{std::string(100'001, 'a'), {"F32", {1}, {1}, 0, bytes.first(8)}}},
       "it has a name that is not UTF-8 of at most 100000 bytes"},
      {{{"a", {"", {1}, {1}, 0, bytes.first(8)}}}, "it has the type ''"},
      {{{"a", {"F32", {1 << 30}, {0}, 0, bytes.first(8)}}},
       "cannot write the tensors: tensor 'a' has 1073741824 elements over a storage of 2"},
  };
  for (const auto& c : cases) {
    try {
      serialize_torch_file(c.tensors);
      ADD_FAILURE() << "wrote what should say: " << c.message;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message));
    }
  }
  const std::string longest(100'000, 'a');
  const std::string file = serialize_torch_file({{longest, {"F32", {2}, {1}, 0, bytes.first(8)}}});
  EXPECT_THAT(names_of(parse_torch_file(as_bytes(file), "x")), ElementsAre(longest));
}

TEST(TorchFile, WritesNothingWhereItCannot) {
  const TemporaryDirectory directory;
  EXPECT_THROW(write_torch_file(directory / "missing" / "x.pt", {}), DataError);
  directory.write("x.pt", "before");
  EXPECT_THROW(write_torch_file(directory / "x.pt", {{"a", {"F32", {1}, {1}, 0, {}}}}),
               CheckpointError);
  EXPECT_EQ(read_text(directory / "x.pt"), "before");
  EXPECT_THAT(directory.names(), ElementsAre("x.pt"));
}

// A shared key of 250 bytes in a dictionary that is referenced many times.
TEST(TorchFile, BoundsTheNames) {
  const std::string tensor = tensor_pickle("K\6", "K\0"s, "K\1\x85", "K\1\x85").substr(2);
  const std::string value = tensor.substr(0, tensor.size() - 1);
  std::string pickle = "\x80\x02](}q\1" + pickled_text(std::string(250, 'k')) + value + "s";
  for (int i = 0; i < 300; ++i) pickle += "h\1";
  pickle += "e.";
  EXPECT_THAT(message_of_torch_file(pack({.pickle = pickle, .storages = {{"0", pattern(24)}}})),
              HasSubstr("the names of tensors are longer than 64 times the pickle"));
}

// Address space for an archive of more than 4 GiB, whose large content consists of untouched zeros.
TEST(ZipArchive, ReadsAndWritesMoreThan32Bits) {
  constexpr std::size_t kLarge = (std::size_t{1} << 32) + 5;
  constexpr std::size_t kTotal = kLarge + (1 << 20);
  void* memory = mmap(nullptr, 2 * kTotal, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* archive = static_cast<std::byte*>(memory);
  const std::span<const std::byte> zeros(archive + kTotal, kLarge);
  std::size_t size = 0;
  torch_file::ZipWriter zip([&](std::string_view piece) {
    if (piece.size() != kLarge) std::memcpy(archive + size, piece.data(), piece.size());
    size += piece.size();
  });
  zip.add("a/first", "one");
  zip.add("a/large", zeros);
  zip.add("a/behind", "two");
  zip.finish();

  const auto entries = torch_file::read_zip({archive, size}, "x");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[1].content.size(), kLarge);
  EXPECT_EQ(entries[2].name, "a/behind");
  EXPECT_EQ(entries[2].crc, torch_file::crc_32(entries[2].content));
  EXPECT_EQ(std::memcmp(entries[2].content.data(), "two", 3), 0);
  for (const auto& entry : entries) EXPECT_EQ((entry.content.data() - archive) % 64, 0);
  munmap(memory, 2 * kTotal);
}

std::string message_of_zip(const std::string& file) {
  try {
    torch_file::read_zip(as_bytes(file), "x");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

struct ZipDamage {
  const char* signature;
  std::size_t offset;
  std::string bytes;
  const char* message;
};

// The named entries are damaged one at a time. Checksums cover contents alone, so they stay valid.
TEST(ZipArchive, RefusesWhatIsWrong) {
  const ZipDamage cases[] = {
      {"PK\5\6", 4, "\1", "several parts or a comment"},
      {"PK\5\6", 8, "\7", "several parts or a comment"},
      {"PK\5\6", 20, "\1", "several parts or a comment"},
      {"PK\5\6", 12, "\1", "two ends of the zip directory contradict"},
      {"PK\6\7", 8, "\1", "zip64 records"},
      {"PK\6\6", 4, "\1", "zip64 records"},
      {"PK\6\6", 48, "\xff\xff", "two ends of the zip directory contradict"},
      {"PK\1\2", 0, "X", "no entry where one was expected"},
      {"PK\1\2", 8, "\1", "is encrypted or has flags"},
      {"PK\1\2", 10, "\10", "is not its header"},
      {"PK\1\2", 20, "\1", "has 1 bytes in the file and 4 when it is unpacked"},
      {"PK\1\2", 28, "\xff\xff", "an entry is longer than the directory"},
      {"PK\1\2", 32, "\1", "has a comment or lies in another part"},
      {"PK\1\2", 34, "\1", "lies in another part"},
      {"PK\1\2", 42, "\xff\xff\xff\x7f", "begins at byte 2147483647"},
      {"PK\1\2", 46, "\n", "has a name that is empty or no text"},
      {"PK\1\2", 46, "b", "is not its header"},
      {"PK\3\4", 0, "X", "is not its header"},
      {"PK\3\4", 8, "\1", "is not its header"},
      {"PK\3\4", 14, "X", "contradicts the zip directory"},
      {"PK\3\4", 18, "\1", "contradicts the zip directory"},
      {"PK\3\4", 28, "\xff\xff", "is not its header"},
  };
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  zip.add("a/one", "1234");
  zip.add("a/two", "5678");
  zip.finish();
  for (const ZipDamage& c : cases) {
    std::string damaged = file;
    damaged.replace(damaged.find(c.signature) + c.offset, c.bytes.size(), c.bytes);
    EXPECT_THAT(message_of_zip(damaged),
                ::testing::AllOf(::testing::StartsWith("x: "), HasSubstr(c.message)));
  }
}

TEST(ZipArchive, RefusesEntriesThatRepeatOrOverlap) {
  const auto zip_of = [](const std::string& first, const std::string& content) {
    std::string file;
    torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
    zip.add(first, content);
    zip.add("a/two", "1234");
    zip.finish();
    return file;
  };
  EXPECT_EQ(message_of_zip(zip_of("a/two", "1234")), "x: two entries are called 'a/two'");
  // The second entry is moved into the content of the first one, which holds the header that the
  // second entry needs.
  const std::string inner = zip_of("a/two", "1234");
  std::string outer = zip_of("a/one", inner.substr(0, inner.find("PK\1\2")));
  EXPECT_EQ(message_of_zip(outer), "nothing was thrown");
  const std::size_t entry = outer.rfind("PK\1\2");
  outer.replace(entry + 42, 4, std::string("\x40\0\0\0", 4));
  EXPECT_THAT(message_of_zip(outer), HasSubstr("zip entries overlap at byte 64"));
}

TEST(TorchFile, RefusesAStorageOfTwoKinds) {
  const auto tensor_over = [](const std::string& elements, const std::string& storage) {
    std::string pickle = tensor_pickle(elements, "K\0"s, "K\1\x85", "K\1\x85");
    pickle.replace(pickle.find("FloatStorage"), 12, storage);
    return pickle.substr(2, pickle.size() - 3);
  };
  const auto refusal = [&](const std::string& second) {
    const std::string first = tensor_over("K\6", "FloatStorage");
    return message_of_torch_file(
        pack({.pickle = "\x80\x02](" + first + second + "e.", .storages = {{"0", pattern(24)}}}));
  };
  EXPECT_EQ(refusal(tensor_over("K\6", "FloatStorage")), "nothing was thrown");
  EXPECT_EQ(refusal(tensor_over("K\6", "IntStorage")),
            "x: storage '0' is a FloatStorage of 6 elements and a IntStorage of 6 elements");
  EXPECT_EQ(refusal(tensor_over("K\5", "FloatStorage")),
            "x: storage '0' is a FloatStorage of 6 elements and a FloatStorage of 5 elements");
}

TEST(TorchFile, RefusesDamageInTheFormatBeforePyTorch16) {
  const std::string file = legacy_torch_file();
  const std::string key = pickled_text("0");
  const std::string keys = "\x80\x02]q\0"s + key + "q\1a.";
  const std::string data = little_endian_64(6) + pattern(24);
  ASSERT_TRUE(file.ends_with(keys + data));
  const std::string before_keys = file.substr(0, file.size() - keys.size() - data.size());
  const auto with = [&](const std::string& part, const std::string& other) {
    std::string changed = file;
    return changed.replace(changed.find(part), part.size(), other);
  };
  const auto with_count = [&](std::uint64_t count) {
    return before_keys + keys + little_endian_64(count) + pattern(24);
  };
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {with("M\xe9\x03", "M\xe8\x03"), "the version of the old format of torch.save is not 1001"},
      {with("M\xe9\x03.", "\x88."), "the version of the old format of torch.save is not 1001"},
      {with("q\1\x88s.", "q\1\x89s."), "the file is big-endian"},
      {with("q\1\x88s.", "q\1K\1s."), "does not say whether its bytes are little-endian"},
      {with("little_endian", "little_indian"), "does not say whether its bytes are little-endian"},
      {before_keys + "\x80\x02}." + data, "the keys of the storages are not a list"},
      {before_keys + "\x80\x02]" + pickled_text("1") + "a." + data,
       "there is a storage that no tensor has"},
      {before_keys + "\x80\x02]K\1a." + data, "there is a storage that no tensor has"},
      {with(key, pickled_text("")).substr(0, before_keys.size() - 1) + "\x80\x02]K\1a." + data,
       "there is a storage that no tensor has"},
      {before_keys + "\x80\x02](" + key + key + "e." + data + data, "storage '0' is there twice"},
      {before_keys + "\x80\x02].", "storage '0' is not in the file"},
      {before_keys + "\x80\x02]." + data, "32 bytes follow the last storage"},
      {with_count(5), "4 bytes follow the last storage"},
      {with_count(7), "storage '0' claims 7 elements, the file holds 24 more bytes (truncated)"},
      {with_count(std::uint64_t{1} << 62), "storage '0' claims 4611686018427387904 elements"},
      {file.substr(0, file.size() - 1), "claims 6 elements, the file holds 23 more bytes"},
      {file.substr(0, file.size() - 25), "the file ends before a storage (truncated)"},
      {file.substr(0, before_keys.size() + 4), "x: keys of the storages: "},
      {file.substr(0, 17), "x: protocol version: "},
  };
  for (const auto& c : cases) {
    const std::string message = message_of_torch_file(c.file);
    EXPECT_THAT(message, ::testing::AllOf(::testing::StartsWith("x: "), HasSubstr(c.message)));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ZipArchive, RefusesNumbersThatDoNotFitTheFile) {
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  zip.add("a/one", "1234");
  zip.add("a/two", "5678");
  zip.finish();
  EXPECT_EQ(message_of_zip(file), "nothing was thrown");
  EXPECT_EQ(message_of_zip(file.substr(0, 21)), "x: truncated zip file of 21 bytes");
  EXPECT_EQ(message_of_zip("PK\5\6" + std::string(18, '\0')), "nothing was thrown") << "empty";

  // The number of entries, according to both ends of the directory.
  const auto with_entries = [&](char count) {
    std::string other = file;
    for (const std::size_t at : {other.rfind("PK\5\6") + 8, other.rfind("PK\5\6") + 10,
                                 other.rfind("PK\6\6") + 24, other.rfind("PK\6\6") + 32}) {
      other[at] = count;
    }
    return other;
  };
  EXPECT_EQ(message_of_zip(with_entries(1)), "x: the zip directory is longer than its 1 entries");
  EXPECT_THAT(message_of_zip(with_entries(100)), HasSubstr(" on for 100 entries, "));

  std::string larger = file;  // 65,536 bytes more, according to the entry's two headers
  for (const std::size_t at : {larger.rfind("PK\1\2") + 22, larger.rfind("PK\1\2") + 26,
                               larger.rfind("PK\3\4") + 20, larger.rfind("PK\3\4") + 24}) {
    larger[at] = '\1';
  }
  EXPECT_THAT(message_of_zip(larger), HasSubstr("x: entry 'a/two' claims 65540 bytes, "));
}

}  // namespace
}  // namespace lockstep::testing_support
