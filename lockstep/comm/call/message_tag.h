// What a message is matched by, beside its peer.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

struct MessageTag {
  /// The tag of a user's message; not negative.
  MessageTag(int user_tag) : value(user_tag) {}  // NOLINT(google-explicit-constructor)

  /// The tag of the messages of one of our own algorithms, which make up collective `number`. All
  /// ranks that call the same collective have the same `fingerprint`.
  static MessageTag of_collective(std::uint64_t number, std::uint32_t fingerprint) {
    MessageTag tag(-1 - static_cast<int>(number & ((std::uint64_t{1} << 30) - 1)));
    tag.collective = number;
    tag.fingerprint = fingerprint;
    return tag;
  }

  /// Users' from 0, of collectives from -2^30 to -1: two share one only if 2^30 others lie between.
  int value;
  std::optional<std::uint64_t> collective;
  std::uint32_t fingerprint = 0;
};

}  // namespace lockstep
