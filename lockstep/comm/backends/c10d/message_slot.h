// Under which tag Gloo carries a message, so that only messages of one size meet.
//
// Gloo ends the process when a message is longer than the receiver's memory, on a thread of its own
// where nobody can catch that. So the size is part of the tag: a receive of another size does not
// match, and both sides wait until their deadlines say so. A tag has 31 bits, too few for every
// size: a size of more than 8 significant bits is padded to one that has no more, and the true one
// travels behind it.
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

// What travels beyond a user's message: half of all tags, which our own algorithms use.
inline constexpr int kOwnTags = 1 << 30;
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

/// Of the messages of our own algorithms, whose sizes the ranks have agreed on: `tag` from -2^30
/// to -1.
constexpr MessageSlot own_slot(int tag, std::uint64_t bytes) {
  return {slots::kOwnTags + (-1 - tag), bytes, false};
}

}  // namespace lockstep::c10d_adapter
