// Archives of .pt files whose entries are compressed, damaged, or lie elsewhere.
#include <lockstep/formats/torch_file.h>

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

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

}  // namespace
}  // namespace lockstep::testing_support
