// The fuzz targets over mutated seeds: the same mutations each time, for every compiler. The bytes
// lie at the end of a page of the heap of their exact size, so that AddressSanitizer sees one byte
// too far.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include <lockstep/core/philox.h>
#include <tests/formats/fuzz/targets.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing {
namespace {

struct Target {
  const char* name;
  bool (*run)(std::span<const std::byte>);
  std::string seed;
  int mutations;
};

bool run_on_exact_copy(const Target& target, const std::string& text) {
  const auto copy = std::make_unique<std::byte[]>(text.size());
  std::memcpy(copy.get(), text.data(), text.size());
  return target.run({copy.get(), text.size()});
}

// One to four edits: a bit, a byte, a cut, a repeated piece, a removed piece.
std::string mutate(std::string text, PhiloxStream& random) {
  const std::uint32_t edits = 1 + random.below(4);
  for (std::uint32_t i = 0; i < edits && !text.empty(); ++i) {
    const auto at = random.below(static_cast<std::uint32_t>(text.size()));
    const auto length = 1 + random.below(16);
    switch (random.below(5)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
      case 1:
        text[at] = "\0\xff\x80{}[]\",:0129-"[random.below(16)];
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.erase(at, length);
        break;
    }
  }
  return text;
}

class Fuzz : public ::testing::TestWithParam<Target> {};

TEST_P(Fuzz, MutatedSeedsMeetOnlyLockstepsErrors) {
  const Target& target = GetParam();
  ASSERT_TRUE(run_on_exact_copy(target, target.seed)) << "the seed itself is right";
  int refused = 0;
  for (int i = 0; i < target.mutations; ++i) {
    PhiloxStream random(0, 0, i);
    const std::string text = mutate(target.seed, random);
    ASSERT_NO_THROW(refused += run_on_exact_copy(target, text) ? 0 : 1) << "mutation " << i;
  }
  EXPECT_GT(refused, target.mutations / 10);
}

TEST_P(Fuzz, EveryTruncationIsRefused) {
  const Target& target = GetParam();
  const std::size_t step = target.seed.size() / 500 + 1;
  for (std::size_t size = 0; size < target.seed.size(); size += step) {
    if (target.seed.size() > 3073 && size % 3073 == 0) continue;  // whole CIFAR records are right
    EXPECT_FALSE(run_on_exact_copy(target, target.seed.substr(0, size))) << size << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parsers, Fuzz,
    ::testing::Values(Target{"cifar", fuzz_cifar, cifar_records(3), 2000},
                      Target{"gzip", fuzz_gzip, gzip(pattern(3000, 1)), 5000},
                      Target{"idx_images", fuzz_idx, idx_images(3, 5, 7), 5000},
                      Target{"idx_labels", fuzz_idx, idx_labels(20), 5000},
                      Target{
                          "safetensors", fuzz_safetensors,
                          safetensors(R"({"__metadata__":{"format":"pt"},)"
                                      R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                      R"("b":{"dtype":"U8","shape":[],"data_offsets":[24,25]},)"
                                      R"("c":{"dtype":"I64","shape":[0],"data_offsets":[25,25]}})",
                                      pattern(25)),
                          20000}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::testing
