// Chooses Gloo's tag for a message, so that a receive matches only a message of its size.
//
// If a message is longer than the receiver's memory, Gloo throws on a thread of its own, where the
// error cannot be caught, and the process ends. Therefore the size is part of the tag: a receive of
// another size does not match, and both sides wait until their deadlines. A tag has 31 bits, too
// few for every size. A size of more than 8 significant bits is padded to a larger one that has at
// most 8, and the true size is sent after the message.
//
// The tags of collectives hold a fingerprint of the call. Ranks that make different calls therefore
// wait for each other until the watchdog, which knows every rank's call, reports the mismatch.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep::gloo {

struct MessageSlot {
  int tag = 0;
  std::uint64_t bytes = 0;  ///< bytes to send; more than the message has if `padded`
  bool padded = false;      ///< the last 8 bytes hold the message's size
};

inline constexpr int kTagBits = 16;  ///< bits of a user's tag

namespace slots {

// This bit marks the messages of Lockstep itself, which have half of all tags.
inline constexpr int kOwnTags = 1 << 30;
inline constexpr int kOwnKindBits = 28;
inline constexpr int kNumberBits = 11;
inline constexpr int kFingerprintBits = 17;
inline constexpr int kMantissaBits = 8;
inline constexpr int kPaddedBit = 1 << 13;

/// Encodes a size like a floating-point number. All sizes of at most 8 significant bits have
/// distinct codes.
constexpr int size_code(std::uint64_t bytes) {
  const int width = std::bit_width(bytes);
  if (width <= kMantissaBits) return static_cast<int>(bytes);
  const int exponent = width - kMantissaBits;
  return (exponent << (kMantissaBits - 1)) + static_cast<int>(bytes >> exponent);
}

/// The smallest size of at most 8 significant bits that is not below `bytes`.
constexpr std::uint64_t rounded_up(std::uint64_t bytes) {
  const int width = std::bit_width(bytes);
  if (width <= kMantissaBits) return bytes;
  const std::uint64_t below = (std::uint64_t{1} << (width - kMantissaBits)) - 1;
  return (bytes + below) & ~below;
}

}  // namespace slots

/// `tag` must be from 0 to 2^16 - 1.
constexpr MessageSlot message_slot(int tag, std::uint64_t bytes) {
  const bool padded = slots::rounded_up(bytes) != bytes;
  const std::uint64_t travelling =
      padded ? slots::rounded_up(bytes + sizeof(std::uint64_t)) : bytes;
  const int code = slots::size_code(travelling) | (padded ? slots::kPaddedBit : 0);
  return {code << kTagBits | tag, travelling, padded};
}

/// Messages that make up a collective. No kind uses the tag with all bits set, which is reserved
/// for probes.
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

/// The tag of a collective that Gloo performs. It differs if ranks make different calls.
constexpr std::uint32_t collective_tag(std::uint64_t number, std::uint32_t fingerprint) {
  return static_cast<std::uint32_t>(number) << 16 | ((fingerprint ^ fingerprint >> 16) & 0xffff);
}

}  // namespace lockstep::gloo
