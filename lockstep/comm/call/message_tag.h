// Identifies a message together with its peer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::comm {

struct MessageTag {
  /// The tag of a user's message; not negative.
  MessageTag(int user_tag) : value(user_tag) {}  // NOLINT(google-explicit-constructor)

  /// The tag of the messages of one of Lockstep's own algorithms, which implement collective
  /// `number`. `fingerprint` is equal on all ranks that call the same collective.
  static MessageTag of_collective(std::uint64_t number, std::uint32_t fingerprint) {
    MessageTag tag(-1 - static_cast<int>(number & ((std::uint64_t{1} << 30) - 1)));
    tag.collective = number;
    tag.fingerprint = fingerprint;
    return tag;
  }

  /// User tags are 0 or more, tags of collectives are from -2^30 to -1. Two collectives share a tag
  /// only if 2^30 others lie between them.
  int value;
  std::optional<std::uint64_t> collective;
  std::uint32_t fingerprint = 0;
};

/// A hash (FNV-1a, 32 bits) of a text that describes a call. Equal in every process that runs the
/// same program; different texts almost certainly have different hashes.
std::uint32_t fingerprint(const std::string& text);

}  // namespace lockstep::comm
