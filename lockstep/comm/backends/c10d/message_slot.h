// Under which tag Gloo carries a message, so that only messages of one size meet.
//
// Gloo ends the process when a message is longer than the receiver's memory, on a thread of its own
// where nobody can catch that. So the size is part of the tag: a receive of another size does not
// match, and both sides wait until their deadlines say so. A tag has 31 bits, too few for every
// size: a size of more than 8 significant bits is padded to one that has no more, and the true one
// travels behind it.
//
// So with collectives: their tags hold a fingerprint of what is called. Ranks that call different
// things wait for each other, and the watchdog, which sees what all are in, says so.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep::c10d_adapter {

struct MessageSlot {
  int tag = 0;
  std::uint64_t bytes = 0;  ///< that travel; with `padded` more than the message has
  bool padded = false;      ///< the last 8 bytes hold the message's size
};

inline constexpr int kTagBits = 16;  ///< of users

namespace slots {

// Half of all tags are for what is no user's message.
inline constexpr int kOwnTags = 1 << 30;
inline constexpr int kOwnKindBits = 28;
inline constexpr int kNumberBits = 11;
inline constexpr int kFingerprintBits = 17;
inline constexpr int kMantissaBits = 8;
inline constexpr int kPaddedBit = 1 << 13;

/// Like a floating-point number: different for all sizes of at most 8 significant bits.
constexpr int size_code(std::uint64_t bytes) {
  const int width = std::bit_width(bytes);
  if (width <= kMantissaBits) return static_cast<int>(bytes);
  const int exponent = width - kMantissaBits;
  return (exponent << (kMantissaBits - 1)) + static_cast<int>(bytes >> exponent);
}

/// The least such size that is not below `bytes`.
constexpr std::uint64_t rounded_up(std::uint64_t bytes) {
  const int width = std::bit_width(bytes);
  if (width <= kMantissaBits) return bytes;
  const std::uint64_t below = (std::uint64_t{1} << (width - kMantissaBits)) - 1;
  return (bytes + below) & ~below;
}

}  // namespace slots

/// `tag`: from 0 to 2^16 - 1.
constexpr MessageSlot message_slot(int tag, std::uint64_t bytes) {
  const bool padded = slots::rounded_up(bytes) != bytes;
  const std::uint64_t travelling =
      padded ? slots::rounded_up(bytes + sizeof(std::uint64_t)) : bytes;
  const int code = slots::size_code(travelling) | (padded ? slots::kPaddedBit : 0);
  return {code << kTagBits | tag, travelling, padded};
}

/// Messages that make up a collective. No kind has the tag with all bits set, which is that of
/// probes.
enum class OwnMessage { kSchedule, kSize, kPiece };

/// The slot of a message of collective `number`. Messages of ranks that call something else do not
/// match it, because their `fingerprint` differs.
constexpr MessageSlot own_slot(OwnMessage kind, std::uint64_t number, std::uint32_t fingerprint,
                               std::uint64_t bytes) {
  const auto low = [](std::uint64_t value, int bits) {
    return static_cast<int>(value & ((std::uint64_t{1} << bits) - 1));
  };
  return {slots::kOwnTags | static_cast<int>(kind) << slots::kOwnKindBits |
              low(number, slots::kNumberBits) << slots::kFingerprintBits |
              low(fingerprint ^ fingerprint >> slots::kFingerprintBits, slots::kFingerprintBits),
          bytes, false};
}

/// The tag of a whole collective that Gloo does: of ranks that do not call the same none meets.
constexpr std::uint32_t collective_tag(std::uint64_t number, std::uint32_t fingerprint) {
  return static_cast<std::uint32_t>(number) << 16 | ((fingerprint ^ fingerprint >> 16) & 0xffff);
}

}  // namespace lockstep::c10d_adapter
