// Contents that only those who have the key can read, change or make.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Encryption by AES-256-SIV (RFC 5297), which OpenSSL 3 implements. It is deterministic: equal
/// contents of one name give equal bytes, as comparing sealed contents needs, and nothing else
/// becomes known. Immutable; safe to use from several threads.
class Sealing {
 public:
  using Bytes = std::vector<std::uint8_t>;
  static constexpr std::size_t kKeyBytes = 64;

  /// `key`: kKeyBytes bytes. Error where OpenSSL has no AES-256-SIV.
  explicit Sealing(const std::string& key);

  /// 17 bytes longer than `content`. `name` is not part of it, but needed to open it.
  Bytes seal(const std::string& name, const Bytes& content) const;
  /// Nothing where `sealed` was not made by seal() with this key and name.
  std::optional<Bytes> open(const std::string& name, const Bytes& sealed) const;

 private:
  class Cipher;
  std::shared_ptr<const Cipher> cipher_;
};

}  // namespace lockstep
