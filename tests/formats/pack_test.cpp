#include <lockstep/formats/pack.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/pack_layout.h>
#include <lockstep/formats/pack_writer.h>
#include <tests/formats/pack_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

template <class T>
T load(const std::string& text, std::size_t offset) {
  T value;
  std::memcpy(&value, text.data() + offset, sizeof(T));
  return value;
}

template <class T>
void store(std::string& text, std::size_t offset, const T& value) {
  std::memcpy(text.data() + offset, &value, sizeof(T));
}

std::size_t entry_offset(const std::string& pack, std::size_t index) {
  return formats::pack_index_offset(load<formats::PackHeader>(pack, 0).names_bytes) +
         index * sizeof(formats::PackEntry);
}

// Values of the reference implementation, because other builds must be able to read the packs.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(formats::checksum({}), 0x2d06800538d394c2U);
  const std::string text = pattern(1000);
  formats::Checksum pieces;
  for (std::size_t at = 0; at < text.size(); at += 300) {
    pieces.add(as_bytes(text).subspan(at, std::min<std::size_t>(300, text.size() - at)));
  }
  EXPECT_EQ(pieces.value(), formats::checksum(as_bytes(text)));
  EXPECT_NE(pieces.value(), formats::checksum(as_bytes(text).first(999)));
}

TEST(Pack, KeepsWhatWasWritten) {
  const std::string pack = pixel_pack(3);
  const std::string pixels = pattern(100);
  const formats::PackReader reader(as_bytes(pack), "x");
  EXPECT_EQ(reader.size(), 3);
  const formats::PackInfo& info = reader.info();
  EXPECT_EQ(info.kind, formats::PackKind::kPixels);
  EXPECT_EQ(info.name, "pixels");
  EXPECT_THAT((std::vector<std::int64_t>{info.channels, info.height, info.width, info.num_classes}),
              ElementsAre(3, 4, 5, 2));
  EXPECT_THAT(info.class_names, IsEmpty());
  for (std::int64_t i = 0; i < 3; ++i) {
    const formats::PackRecord record = reader.record(i);
    EXPECT_TRUE(std::ranges::equal(record.bytes, as_bytes(pixels).subspan(i, 60)));
    EXPECT_EQ((record.bytes.data() - as_bytes(pack).data()) % formats::kPackRecordAlignment, 0);
    EXPECT_EQ(record.label, i % 2);
    EXPECT_EQ(reader.label(i), i % 2);
    EXPECT_NO_THROW(reader.verify(i));
  }
}

TEST(Pack, KeepsFilesAndNamesOfClasses) {
  const std::string pack = file_pack();
  const formats::PackReader reader(as_bytes(pack), "x");
  EXPECT_EQ(reader.info().kind, formats::PackKind::kFiles);
  EXPECT_THAT(reader.info().class_names, ElementsAre("cat", "dog", "none of these"));
  EXPECT_EQ(reader.info().height, 0) << "each has its own";
  EXPECT_EQ(reader.record(0).width, 21);
  EXPECT_EQ(reader.record(1).height, 7);
  EXPECT_EQ(reader.record(1).label, 0);
}

TEST(Pack, HasOneShapeOnlyWhenAllImagesHaveIt) {
  for (const bool own_sizes : {false, true}) {
    const std::string pack = pixel_pack(3, own_sizes);
    const formats::PackReader reader(as_bytes(pack), "x");
    EXPECT_EQ(reader.info().height, own_sizes ? 0 : 4);
    EXPECT_EQ(reader.info().width, own_sizes ? 0 : 5);
    EXPECT_EQ(reader.record(2).width, own_sizes ? 7 : 5);
  }
}

// One checksum covers the header, names and index, and each image has its own.
TEST(Pack, EveryDamagedByteIsFound) {
  const std::string right = pixel_pack(2);
  const auto data = load<formats::PackEntry>(right, entry_offset(right, 0)).offset;
  for (std::size_t at = 0; at < right.size(); ++at) {
    std::string pack = right;
    pack[at] = static_cast<char>(pack[at] ^ 0x10);
    const std::string error = message_of<DataError>([&] {
      const formats::PackReader reader(as_bytes(pack), "x");
      for (std::int64_t i = 0; i < reader.size(); ++i) reader.verify(i);
    });
    const bool padding = at >= data + 60 && at < data + formats::kPackRecordAlignment;
    ASSERT_EQ(error == "nothing was thrown", padding) << "byte " << at << ": " << error;
  }
}

TEST(Pack, SaysWhatIsWrong) {
  const std::string right = pixel_pack(3);
  const auto header = [&](auto change) {
    std::string pack = right;
    auto value = load<formats::PackHeader>(pack, 0);
    change(value);
    store(pack, 0, value);
    return with_right_checksums(pack);
  };
  const auto entry = [&](std::size_t index, auto change) {
    std::string pack = right;
    auto value = load<formats::PackEntry>(pack, entry_offset(pack, index));
    change(value);
    store(pack, entry_offset(pack, index), value);
    return with_right_checksums(pack);
  };
  std::string flipped = right;
  flipped[30] = 1;
  std::string named = right;
  store(named, sizeof(formats::PackHeader), std::uint32_t{7});
  std::string two_names = right;  // two names of one letter each
  store(two_names, sizeof(formats::PackHeader), std::uint32_t{1});
  store(two_names, sizeof(formats::PackHeader) + 5, std::uint32_t{1});
  std::string many_names = pixel_pack(3, false, std::string(40, '\0'));  // all empty
  store(many_names, sizeof(formats::PackHeader), std::uint32_t{0});
  std::string cut_names = right;
  store(cut_names, sizeof(formats::PackHeader), std::uint32_t{3});
  std::string indexed = right;
  indexed[entry_offset(indexed, 1)] ^= 1;
  struct Case {
    const char* message;
    std::string pack;
  };
  const Case cases[] = {
      {"is not a packed image file", ""},
      {"is not a packed image file", std::string(5000, 'x')},
      {"by its header: it was cut short", right.substr(0, right.size() - 1)},
      {"by its header: it was cut short", right + "x"},
      {"the header's checksum is wrong", flipped},
      {"got version 2 of the format, expected 1", header([](auto& h) { h.version = 2; })},
      {"records of kind 3", header([](auto& h) { h.kind = 3; })},
      {"got 0 records", header([](auto& h) { h.records = 0; })},
      {"got 576460752303423488 records and 10 bytes of names, which do not fit into its 4284 bytes",
       header([](auto& h) { h.records = std::uint64_t{1} << 59; })},
      {"got 3 records and 18446744073709551615 bytes of names, which do not fit into its 4284 "
       "bytes",
       header([](auto& h) { h.names_bytes = ~std::uint64_t{0}; })},
      {"5x4x5, in 2 classes, which cannot be", header([](auto& h) { h.channels = 5; })},
      {"in 0 classes", header([](auto& h) { h.classes = 0; })},
      {"in 1048577 classes", header([](auto& h) { h.classes = formats::kMaximumPackClasses + 1; })},
      {"record 2 of 60 bytes at 4224, expected at 4224, in a file of 4283",
       with_right_checksums(right.substr(0, right.size() - 1), PackLength::kMadeRight)},
      {"got 4285 bytes, expected the last record to end them at 4284",
       with_right_checksums(right + "x", PackLength::kMadeRight)},
      {"3x0x5", header([](auto& h) { h.height = 0; })},
      {"3x4x0", header([](auto& h) { h.width = 0; })},
      {"3x65536x5", header([](auto& h) { h.height = 65'536; })},
      {"3x4x65536", header([](auto& h) { h.width = 65'536; })},
      {"0x4x5", header([](auto& h) { h.channels = 0; })},
      {"records of kind 0", header([](auto& h) { h.kind = 0; })},
      {"1x4x5", header([](auto& h) { h.kind = 1, h.channels = 1; })},
      {"checksum of its names and index is wrong", indexed},
      {"name 0 is longer than all names", with_right_checksums(named)},
      {"got 2 names, expected 1 or 3", with_right_checksums(two_names)},
      {"got at least 4 names, expected 1 or 3", with_right_checksums(many_names)},
      {"its names end within a length", with_right_checksums(cut_names)},
      {"record 1 of 60 bytes at 4161, expected at 4160", entry(1, [](auto& e) { e.offset += 1; })},
      {"record 2 of 4294967295 bytes", entry(2, [](auto& e) { e.bytes = ~0U; })},
      {"record 0 of 59 bytes claims 4x5 pixels", entry(0, [](auto& e) { e.bytes = 59; })},
      {"claims 5x4 pixels", entry(0, [](auto& e) { e.height = 5, e.width = 4; })},
      {"claims 4x6 pixels", entry(0, [](auto& e) { e.width = 6; })},
      {"claims 3x5 pixels", entry(2, [](auto& e) { e.height = 3; })},
      {"of class 4294967295", entry(2, [](auto& e) { e.label = ~0U; })},
      {"of class 2, which cannot be", entry(0, [](auto& e) { e.label = 2; })},
  };
  std::string empty_file = file_pack();  // the last record, so that the file ends with it
  auto last = load<formats::PackEntry>(empty_file, entry_offset(empty_file, 1));
  empty_file.resize(last.offset);
  last.bytes = 0;
  store(empty_file, entry_offset(empty_file, 1), last);
  EXPECT_THAT(message_of<DataError>([&] {
                formats::PackReader(
                    as_bytes(with_right_checksums(empty_file, PackLength::kMadeRight)),
                    "some.pack");
              }),
              HasSubstr("record 1 of 0 bytes claims 7x9 pixels of class 0, which cannot be"));
  for (const Case& c : cases) {
    EXPECT_THAT(message_of<DataError>([&] { formats::PackReader(as_bytes(c.pack), "some.pack"); }),
                AllOf(StartsWith("some.pack"), HasSubstr(c.message)));
  }
  std::string damaged = right;
  damaged.back() ^= 1;
  const formats::PackReader reader(as_bytes(damaged), "some.pack");
  EXPECT_NO_THROW(reader.verify(1));
  EXPECT_THAT(message_of<DataError>([&] { reader.verify(2); }),
              "some.pack: record 2 is damaged: its checksum is wrong; make it again with `lockstep "
              "data pack`");
}

TEST(PackWriter, LeavesNothingUnlessItFinishes) {
  const TemporaryDirectory directory;
  const formats::PackInfo info{.name = "x", .channels = 1, .num_classes = 1};
  const std::string pixels = pattern(6);
  directory.write("out", "what was there");
  {
    formats::PackWriter writer(directory / "out", info, 2);
    writer.add({as_bytes(pixels), 0, 2, 3});
    EXPECT_THAT(message_of<InternalError>([&] { writer.finish(); }),
                HasSubstr(str((directory / "out").string(), ": 1 of 2 records")));
  }
  EXPECT_THAT(directory.names(), ElementsAre("out"));
  EXPECT_EQ(read_text(directory / "out"), "what was there");

  formats::PackWriter writer(directory / "out", info, 2);
  for (int i = 0; i < 2; ++i) writer.add({as_bytes(pixels), 0, 2, 3});
  EXPECT_THAT(message_of<InternalError>([&] { writer.add({as_bytes(pixels), 0, 2, 3}); }),
              HasSubstr(str((directory / "out").string(), ": more than 2 records")));
  writer.finish();
  EXPECT_EQ(writer.bytes(), std::filesystem::file_size(directory / "out"));
  EXPECT_THAT(directory.names(), ElementsAre("out"));
}

TEST(PackWriter, RefusesWhatNoReaderWouldTake) {
  const TemporaryDirectory directory;
  const formats::PackInfo info{.name = "x", .channels = 1, .num_classes = 2};
  const std::string pixels = pattern(6);
  formats::PackWriter writer(directory / "out", info, 9);
  const formats::PackRecord records[] = {
      {as_bytes(pixels), 2, 2, 3},          {as_bytes(pixels), -1, 2, 3},
      {as_bytes(pixels), 0, 2, 4},          {as_bytes(pixels), 0, 0, 0},
      {as_bytes(pixels).first(0), 0, 0, 3}, {as_bytes(pixels), 0, 1, 65'536}};
  for (const formats::PackRecord& record : records) {
    EXPECT_THAT(message_of<InternalError>([&] { writer.add(record); }),
                HasSubstr(str((directory / "out").string(), ": record 0 of ", record.bytes.size(),
                              " bytes, ", record.height, "x", record.width, " pixels, class ",
                              record.label)));
  }

  const auto error = [&](formats::PackInfo wrong, std::int64_t count) {
    return message_of<ConfigError>([&] { formats::PackWriter(directory / "no", wrong, count); });
  };
  EXPECT_THAT(error(info, 0), HasSubstr("records must be at least 1"));
  EXPECT_THAT(error({.channels = 5, .num_classes = 1}, 1),
              HasSubstr("channels must be from 1 to 4"));
  EXPECT_THAT(error({.kind = formats::PackKind::kFiles, .channels = 1, .num_classes = 1}, 1),
              HasSubstr("channels must be 3 for a pack of files, got 1"));
  EXPECT_THAT(error({.channels = 1, .num_classes = 0}, 1), HasSubstr("num_classes"));
  EXPECT_THAT(error({.channels = 1, .num_classes = formats::kMaximumPackClasses + 1}, 1),
              HasSubstr("num_classes must be from 1 to"));
  EXPECT_THAT(error({.channels = 1, .num_classes = 3, .class_names = {"a"}}, 1),
              HasSubstr("class_names"));
  EXPECT_THAT(message_of<DataError>([&] { formats::PackWriter(directory / "no/pack", info, 1); }),
              HasSubstr("no/pack: No such file"));
}

// The last value that each bound allows, for a writer and a reader.
TEST(PackWriter, ReachesToTheEndsOfItsRanges) {
  const TemporaryDirectory directory;
  const std::string pixels = pattern(4 * 65'535);
  const struct {
    std::int64_t channels, classes, label, height, width;
  } cases[] = {{1, 1, 0, 1, 1},
               {4, formats::kMaximumPackClasses, formats::kMaximumPackClasses - 1, 1, 65'535},
               {2, 300, 299, 65'535, 1},
               {3, 70'000, 69'999, 7, 9}};
  for (const auto& c : cases) {
    const auto record =
        as_bytes(pixels).first(static_cast<std::size_t>(c.channels * c.height * c.width));
    formats::PackWriter writer(directory / "pack",
                               {.name = "", .channels = c.channels, .num_classes = c.classes}, 1);
    writer.add({record, c.label, c.height, c.width});
    writer.finish();
    const std::string file = read_text(directory / "pack");
    const formats::PackReader reader(as_bytes(file), "x");
    const auto& info = reader.info();
    EXPECT_EQ(info.name, "");
    EXPECT_THAT((std::vector{info.channels, info.num_classes, info.height, info.width}),
                ElementsAre(c.channels, c.classes, c.height, c.width));
    const formats::PackRecord read = reader.record(0);
    EXPECT_THAT((std::vector{read.label, reader.label(0), read.height, read.width}),
                ElementsAre(c.label, c.label, c.height, c.width));
    EXPECT_TRUE(std::ranges::equal(read.bytes, record));
    EXPECT_NO_THROW(reader.verify(0));
  }
}

// A limit on the file size simulates a full disk: the writes fail halfway in both cases.
TEST(PackWriter, AFullDiskIsSaidAndLeavesNothing) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{500'000, 500'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string pixels = pattern(300'000);
    const std::string error = message_of<DataError>([&] {
      formats::PackWriter writer(directory / "out", {.name = "x", .channels = 1, .num_classes = 1},
                                 20);
      for (int i = 0; i < 20; ++i) writer.add({as_bytes(pixels), 0, 1000, 300});
    });
    _exit(error == "cannot write " + (directory / "out").string() + ": File too large" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_THAT(directory.names(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing_support
