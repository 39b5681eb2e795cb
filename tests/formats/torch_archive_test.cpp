// Archives of .pt files whose entries are compressed, damaged, or lie elsewhere.
#include <lockstep/formats/torch_file.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/torch_file/archive_records.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using namespace std::string_literals;

std::string archive_of_python() {
  return pack({.pickle = python_state_pickle(), .storages = {{"0", pattern(24)}}});
}

std::string refusal_of_archive(const std::string& file) {
  return message_of<CheckpointError>([&] { parse_torch_file(as_bytes(file), "x"); });
}

TEST(TorchArchive, HasEntriesThatAreNotCompressed) {
  std::string file = archive_of_python();
  file[file.find("PK\1\2") + 10] = '\x08';  // the method, in the directory and at the entry
  file[file.find("PK\3\4") + 8] = '\x08';
  EXPECT_EQ(refusal_of_archive(file),
            "x: entry 'archive/data.pkl' is compressed, expected it as it is: unpack the file and "
            "pack it again without compression, or write it again by torch.save");
}

TEST(TorchArchive, HasEntriesInOneFolder) {
  for (const std::string name : {"b/version", "ab/version", "version"}) {
    std::string file;
    torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
    zip.add("a/data.pkl", "x");
    zip.add(name, "3\n");
    zip.finish();
    EXPECT_EQ(refusal_of_archive(file), "x: the zip file is not one of torch.save: '" + name +
                                            "' lies outside of the folder 'a'");
  }
}

TEST(TorchArchive, NamesTheEntryThatIsDamaged) {
  const std::string content = pattern(24);
  std::string damaged = content;
  damaged[5] ^= 1;
  std::string file = archive_of_python();
  file.replace(file.find(content), content.size(), damaged);
  EXPECT_EQ(refusal_of_archive(file), str("x: entry 'archive/data/0' is damaged: its CRC-32 is ",
                                          torch_file::crc_32(as_bytes(damaged)), ", expected ",
                                          torch_file::crc_32(as_bytes(content))));
}

// A program that writes a stream knows the size and the checksum of an entry only behind it.
TEST(TorchArchive, MayHaveSizesInItsDirectoryOnly) {
  std::string file = archive_of_python();
  const std::size_t entry = file.find("PK\3\4");
  file[file.find("PK\1\2") + 8] = '\x08';  // the flag of such an entry
  file[entry + 6] = '\x08';
  file.replace(entry + 14, 12, 12, '\0');
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  EXPECT_TRUE(parsed.has_checksums);
  EXPECT_EQ(parsed.tensors.size(), 2U);
  file[entry + 6] = '\0';
  EXPECT_EQ(refusal_of_archive(file),
            str("x: entry 'archive/data.pkl' is damaged: what stands at byte ", entry,
                " is not its header"))
      << "the flags of the two contradict each other";
}

// A program that reads such files may ask for each of these entries.
TEST(TorchArchive, IsWrittenWithTheEntriesOfTorchSave) {
  const std::string data = pattern(8);
  const std::string file =
      serialize_torch_file({{"a", {"F32", {1}, {1}, 0, as_bytes(data).first(4)}},
                            {"b", {"F8_E5M2", {4}, {1}, 0, as_bytes(data).subspan(4)}}});
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& entry : torch_file::read_zip(as_bytes(file), "x")) {
    const auto* begin = reinterpret_cast<const char*>(entry.content.data());
    entries.emplace_back(entry.name, std::string(begin, entry.content.size()));
  }
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].first, "archive/data.pkl");
  EXPECT_EQ(entries[1], std::pair("archive/byteorder"s, "little"s));
  EXPECT_EQ(entries[2], std::pair("archive/data/0"s, data.substr(0, 4)));
  EXPECT_EQ(entries[3], std::pair("archive/data/1"s, data.substr(4)));
  EXPECT_EQ(entries[4], std::pair("archive/version"s, "3\n"s));

  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  const auto& content = std::get<PickleDict>(parsed.content->content);
  const struct {
    const char* name;
    const char* type;
    const char* key;
    const char* dtype;
  } tensors[] = {{"a", "FloatStorage", "0", ""}, {"b", "UntypedStorage", "1", "float8_e5m2"}};
  for (const auto& expected : tensors) {
    const auto& tensor = std::get<PickleTensor>(content.find(expected.name)->content);
    EXPECT_EQ(tensor.storage->type, expected.type);
    EXPECT_EQ(tensor.storage->key, expected.key);
    EXPECT_EQ(tensor.storage->location, "cpu");
    EXPECT_EQ(tensor.storage->elements, std::string(expected.name) == "a" ? 1 : 4);
    EXPECT_EQ(tensor.dtype, expected.dtype);
  }
}

// The last storage of a file of the format before PyTorch 1.6 may hold nothing: then the file ends
// with its count.
TEST(LegacyTorchFile, MayEndWithAnEmptyStorage) {
  const std::string whole = legacy_torch_file();
  const std::string before = whole.substr(0, whole.find("\x80\x02"
                                                        "ccollections"));
  const std::string keys = "\x80\x02]q\0"s + pickled_text("0") + "q\1a.";
  const auto file_with = [&](const std::string& elements, std::uint64_t count) {
    return before + tensor_pickle(elements + "N", "K\0"s, "K\0\x85"s, "K\1\x85") + keys +
           little_endian_64(count);
  };
  const std::string file = file_with("K\0"s, 0);
  const TorchFile parsed = parse_torch_file(as_bytes(file), "x");
  ASSERT_EQ(parsed.tensors.size(), 1U);
  EXPECT_EQ(parsed.tensors[0].second.shape, std::vector<std::int64_t>{0});
  EXPECT_TRUE(parsed.tensors[0].second.storage.empty());
  EXPECT_FALSE(parsed.has_checksums);
  EXPECT_EQ(refusal_of_archive(file.substr(0, file.size() - 1)),
            "x: the file ends before a storage (truncated)");
  EXPECT_EQ(refusal_of_archive(file_with("K\0"s, 1)),
            "x: storage '0' claims 1 elements, the file holds 0 more bytes (truncated)");
  EXPECT_EQ(refusal_of_archive(file_with("K\0"s, std::uint64_t{1} << 56)),
            "x: storage '0' claims 72057594037927936 elements, the file holds 0 more bytes "
            "(truncated)");
}

using torch_file::ArchiveRecords;

std::string archive_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  for (const auto& [name, content] : entries) zip.add(name, content);
  zip.finish();
  return file;
}

TEST(ArchiveRecords, HaveNamesWithoutTheFolder) {
  const std::string file =
      archive_of({{"net/b", "1"}, {"net/a/c", "22"}, {"net/byteorder", "little"}});
  const ArchiveRecords records(as_bytes(file), "x", "torch.save");
  EXPECT_EQ(records.names(), (std::vector<std::string>{"a/c", "b", "byteorder"}));
  EXPECT_TRUE(records.contains("a/c"));
  EXPECT_FALSE(records.contains("net/b"));
  EXPECT_FALSE(records.contains("a"));
  EXPECT_EQ(records.text("a/c"), "22");
  EXPECT_EQ(records.at("b").size(), 1U);
  EXPECT_TRUE(records.verify_checksums());
  EXPECT_NO_THROW(records.require_little_endian());
  EXPECT_EQ(message_of<CheckpointError>([&] { records.at("net/b"); }),
            "x: the zip file is not one of torch.save: it has no 'net/b'");
}

// Before PyTorch 2.8, torch.export.save wrote no folder; torch.save always has.
TEST(ArchiveRecords, MayLieInNoFolder) {
  const std::string file = archive_of({{"a", "1"}, {"b/c", "2"}});
  const ArchiveRecords records(as_bytes(file), "x", "torch.export.save");
  EXPECT_EQ(records.names(), (std::vector<std::string>{"a", "b/c"}));
  const auto refusal = [](const std::string& bytes, const char* writer) {
    return message_of<CheckpointError>([&] { ArchiveRecords(as_bytes(bytes), "x", writer); });
  };
  EXPECT_EQ(refusal(file, "torch.save"),
            "x: the zip file is not one of torch.save: it has no folder");
  EXPECT_EQ(refusal(archive_of({}), "torch.export.save"),
            "x: the zip file is not one of torch.export.save: it has no folder");
  EXPECT_EQ(refusal(archive_of({{"b/c", "2"}, {"a", "1"}}), "torch.export.save"),
            "x: the zip file is not one of torch.export.save: 'a' lies outside of the folder 'b'");
}

TEST(ArchiveRecords, SayWhoWroteThem) {
  std::string file = archive_of({{"net/byteorder", "big"}, {"net/a", "1"}});
  {
    const ArchiveRecords records(as_bytes(file), "x", "torch.export.save");
    EXPECT_EQ(message_of<CheckpointError>([&] { records.require_little_endian(); }),
              "x: the byte order is 'big', expected little; load the file in Python on any machine "
              "and save it on a little-endian one");
  }
  file[file.find("PK\1\2") + 10] = '\x08';  // the method, in the directory and at the entry
  file[file.find("PK\3\4") + 8] = '\x08';
  const ArchiveRecords records(as_bytes(file), "x", "torch.export.save");
  const std::string message =
      "x: entry 'net/byteorder' is compressed, expected it as it is: unpack the file and pack it "
      "again without compression, or write it again by torch.export.save";
  EXPECT_EQ(message_of<CheckpointError>([&] { records.at("byteorder"); }), message);
  EXPECT_EQ(message_of<CheckpointError>([&] { records.verify_checksums(); }), message);
  EXPECT_EQ(records.text("a"), "1") << "the others can be read";
}

// set_crc32_options(False) of PyTorch writes zeros.
TEST(ArchiveRecords, MayHaveNoChecksums) {
  std::string file = archive_of({{"net/a", "1"}, {"net/b", ""}});
  const auto clear = [&](const char* signature, std::size_t field) {
    for (std::size_t at = file.find(signature); at != std::string::npos;
         at = file.find(signature, at + 1)) {
      file.replace(at + field, 4, 4, '\0');
    }
  };
  EXPECT_TRUE(ArchiveRecords(as_bytes(file), "x", "torch.save").verify_checksums());
  clear("PK\1\2", 16);
  clear("PK\3\4", 14);
  EXPECT_FALSE(ArchiveRecords(as_bytes(file), "x", "torch.save").verify_checksums());
}

}  // namespace
}  // namespace lockstep::testing_support
