// What fuzz targets and their tests share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <tests/formats/fuzz/seeds.h>

namespace lockstep::testing_support {

/// Volatile, so that the compiler keeps the reads that a sanitizer must see.
inline volatile std::uint8_t fuzz_sink;

/// Reads all bytes.
inline void touch(const std::uint8_t* data, std::int64_t count) {
  std::uint8_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum = static_cast<std::uint8_t>(sum + data[i]);
  fuzz_sink = sum;
}
inline void touch(std::span<const std::byte> bytes) {
  touch(reinterpret_cast<const std::uint8_t*>(bytes.data()),
        static_cast<std::int64_t>(bytes.size()));
}

/// Whether `parse` returns. An error of Lockstep's family is a refusal; other exceptions pass.
template <class Parse>
bool accepts(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// Runs the target on an allocation of exactly the text's size, so that AddressSanitizer detects an
/// access one byte beyond it.
inline bool run_on_exact_copy(const Seed& seed, const std::string& text) {
  const auto copy = std::make_unique<std::byte[]>(text.size());
  std::memcpy(copy.get(), text.data(), text.size());
  return seed.run({copy.get(), text.size()});
}

/// Makes one to four edits: a changed bit or byte, a cut, a repeated piece or a removed piece. They
/// are the same each time and with every compiler.
inline std::string mutate(std::string text, PhiloxStream& random) {
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

}  // namespace lockstep::testing_support
