#include <lockstep/formats/gzip.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

constexpr std::size_t kMaximumBytes = 1 << 20;

std::string unpack(const std::string& compressed, std::size_t maximum_bytes = kMaximumBytes) {
  const formats::ByteBuffer content = formats::gunzip(as_bytes(compressed), maximum_bytes, "x.gz");
  return {reinterpret_cast<const char*>(content.bytes().data()), content.bytes().size()};
}

TEST(Gunzip, GivesBackWhatWasCompressed) {
  for (const std::size_t size : {0, 1, 1000, 100'000}) {
    const std::string text = pattern(size);
    EXPECT_EQ(unpack(gzip(text)), text);
  }
  EXPECT_EQ(unpack(gzip(std::string(kMaximumBytes, '\0'))), std::string(kMaximumBytes, '\0'));
}

TEST(Gunzip, StatesTheSizeWithoutUnpacking) {
  const std::string compressed = gzip(pattern(2000));
  EXPECT_EQ(formats::gzip_stated_bytes(as_bytes(compressed), "x.gz"), 2000U);
  EXPECT_EQ(message_of<DataError>(
                [&] { formats::gzip_stated_bytes(as_bytes(compressed).first(17), "x.gz"); }),
            "x.gz: truncated gzip file of 17 bytes");
  // Any 18 bytes may be a header and a trailer, whose last four are the size.
  std::string least = compressed.substr(0, 14) + "\4\3\2\1";
  EXPECT_EQ(formats::gzip_stated_bytes(as_bytes(least), "x.gz"), 0x01020304U);
  least[1] = '\0';
  EXPECT_EQ(message_of<DataError>([&] { formats::gzip_stated_bytes(as_bytes(least), "x.gz"); }),
            "x.gz: not a gzip file (it does not begin with 1f 8b)");
  EXPECT_THROW(formats::gzip_stated_bytes(as_bytes(pattern(2000)), "x.gz"), DataError);
}

TEST(Gunzip, RefusesWhatIsWrong) {
  const std::string text = pattern(2000);
  const std::string right = gzip(text);
  const auto with_byte = [&](std::size_t offset_from_end, char change) {
    std::string result = right;
    result[result.size() - offset_from_end] ^= change;
    return result;
  };
  struct Case {
    const char* name;
    std::string compressed;
    std::size_t maximum_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"empty", "", kMaximumBytes, "not a gzip file"},
      {"plain", text, kMaximumBytes, "not a gzip file"},
      {"header only", right.substr(0, 10), kMaximumBytes, "truncated gzip file of 10 bytes"},
      {"truncated", right.substr(0, right.size() / 2), kMaximumBytes, ""},
      {"wrong checksum", with_byte(8, 1), kMaximumBytes, "damaged or truncated"},
      {"claims one byte less", with_byte(4, 1), kMaximumBytes, "damaged or truncated"},
      {"claims 256 bytes less", with_byte(3, 1), kMaximumBytes, "damaged or truncated"},
      {"claims gigabytes", with_byte(1, 0x40), kMaximumBytes, ", at most 1048576 are expected"},
      {"claims more than deflate can", with_byte(2, 0x70), std::size_t{1} << 40, "cannot hold"},
      {"larger than allowed", right, text.size() - 1,
       "x.gz: would unpack to 2000 bytes, at most 1999 are expected"},
      {"bit in the stream", with_byte(right.size() / 2, 4), kMaximumBytes, "damaged or truncated"},
      {"trailing bytes", right + right.substr(right.size() - 8), kMaximumBytes, "8 bytes follow"},
      {"two members", right + right, kMaximumBytes, "bytes follow the end"},
  };
  const std::string impossible = with_byte(2, 0x70);
  EXPECT_EQ(message_of<DataError>([&] { unpack(impossible, std::size_t{1} << 40); }),
            str("x.gz: damaged or truncated gzip file (claims ", 2000 + 0x70'0000, " bytes, which ",
                impossible.size(), " compressed bytes cannot hold)"));
  EXPECT_EQ(message_of<DataError>([&] { unpack(right + right); }),
            str("x.gz: ", right.size(), " bytes follow the end of the gzip data"));
  for (const Case& c : cases) {
    try {
      unpack(c.compressed, c.maximum_bytes);
      ADD_FAILURE() << c.name << " was accepted";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::StartsWith("x.gz: "),
                                                 ::testing::HasSubstr(c.message)))
          << c.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
