#include <lockstep/formats/idx.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

TEST(Idx, ReadsImages) {
  const std::string file = idx_images(2, 3, 5);
  const formats::IdxImages images = formats::parse_idx_images(as_bytes(file), "x");
  EXPECT_EQ(images.count, 2);
  EXPECT_EQ(images.height, 3);
  EXPECT_EQ(images.width, 5);
  EXPECT_EQ(reinterpret_cast<const char*>(images.pixels), file.data() + 16);
}

TEST(Idx, ReadsLabels) {
  const std::string file = idx_labels(12);
  const formats::IdxLabels labels = formats::parse_idx_labels(as_bytes(file), "x");
  EXPECT_EQ(labels.count, 12);
  EXPECT_EQ(labels.labels[11], 1);
}

// Only the sides of an image are limited, not the number of images or labels.
TEST(Idx, ReadsTheLargestSidesAndAnyCount) {
  const std::string labels = idx_labels(65'537);
  const formats::IdxLabels many = formats::parse_idx_labels(as_bytes(labels), "x");
  EXPECT_EQ(many.count, 65'537);
  EXPECT_EQ(many.labels[65'536], 6);
  const std::uint32_t shapes[][3] = {{65'537, 1, 1}, {1, 65'536, 1}, {1, 1, 65'536}, {1, 1, 1}};
  for (const auto& [count, height, width] : shapes) {
    const std::string file = idx_images(count, height, width);
    const formats::IdxImages images = formats::parse_idx_images(as_bytes(file), "x");
    EXPECT_EQ(images.count, count);
    EXPECT_EQ(images.height, height);
    EXPECT_EQ(images.width, width);
  }
}

// Address space for a file of 8 GiB, whose pixels are untouched zeros.
TEST(Idx, ReadsMoreThan32Bits) {
  constexpr std::size_t kPixels = std::size_t{1} << 33;
  void* memory = mmap(nullptr, 16 + kPixels, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "needs 8 GiB of address space";
  const std::string header = big_endian({0x803, 2, 65'536, 65'536});
  std::memcpy(memory, header.data(), header.size());
  const auto* bytes = static_cast<const std::byte*>(memory);
  const formats::IdxImages images = formats::parse_idx_images({bytes, 16 + kPixels}, "x");
  EXPECT_EQ(images.count, 2);
  EXPECT_EQ(images.height, 65'536);
  EXPECT_EQ(images.width, 65'536);
  EXPECT_EQ(message_of<DataError>([&] { formats::parse_idx_images({bytes, 16}, "x"); }),
            "x: truncated, got 0 bytes after the header, expected 8589934592");
  EXPECT_EQ(message_of<DataError>([&] { formats::parse_idx_images({bytes, 15 + kPixels}, "x"); }),
            "x: truncated, got 8589934591 bytes after the header, expected 8589934592");
  munmap(memory, 16 + kPixels);
}

TEST(Idx, RefusesWhatIsWrong) {
  const std::string images = idx_images(2, 3, 5);
  const std::string labels = idx_labels(4);
  struct Case {
    const char* name;
    bool as_images;
    std::string file;
    const char* message;
  };
  const Case cases[] = {
      {"empty", true, "", "truncated, got 0 bytes"},
      {"half a header", true, images.substr(0, 15), "truncated, got 15 bytes"},
      {"one byte short", true, images.substr(0, images.size() - 1), "truncated, got 29 bytes"},
      {"one byte more", true, images + "x",
       "oversized, got 31 bytes after the header, expected 30"},
      {"labels given as images", true, idx_labels(20),
       "expected IDX images (magic 0x803), got IDX labels (0x801)"},
      {"images given as labels", false, images,
       "expected IDX labels (magic 0x801), got IDX images (0x803)"},
      {"floats", true, big_endian({0xd03, 1, 1, 1}) + "xxxx", "no IDX file of bytes (0xd03)"},
      {"no images", true, big_endian({0x803, 0, 28, 28}), "dimension 0"},
      {"no height", true, big_endian({0x803, 1, 0, 28}), "dimension 1 of the header is 0"},
      {"no labels", false, big_endian({0x801, 0}), "dimension 0 of the header is 0"},
      {"too high", true, big_endian({0x803, 1, 65'537, 1}) + std::string(65'537, 'x'),
       "dimension 1 of the header is 65537"},
      {"too wide", true, big_endian({0x803, 1, 1, 65'537}) + std::string(65'537, 'x'),
       "dimension 2 of the header is 65537"},
      {"no width", true, big_endian({0x803, 1, 28, 0}), "dimension 2"},
      {"a size beyond all memory", true, big_endian({0x803, 0xffffffff, 0xffffffff, 0xffffffff}),
       "dimension 1 of the header is 4294967295"},
      {"a product that wraps", true, big_endian({0x803, 0x80000000, 0x10000, 0x10000}),
       "truncated"},
      {"labels short", false, labels.substr(0, labels.size() - 1), "truncated, got 3 bytes"},
      {"labels long", false, labels + "x", "oversized, got 5 bytes"},
  };
  for (const Case& c : cases) {
    try {
      if (c.as_images) {
        formats::parse_idx_images(as_bytes(c.file), "x");
      } else {
        formats::parse_idx_labels(as_bytes(c.file), "x");
      }
      ADD_FAILURE() << c.name << " was accepted";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::StartsWith("x: "), ::testing::HasSubstr(c.message)))
          << c.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
