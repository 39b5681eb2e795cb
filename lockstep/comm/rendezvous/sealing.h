// Authenticated encryption: only holders of the key can read, change or create contents.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::comm {

/// AES-256-SIV (RFC 5297), as implemented by OpenSSL 3. The encryption is deterministic: equal
/// contents under one name give equal bytes, which is needed to compare sealed contents. It reveals
/// nothing else. Immutable; safe to use from several threads.
class Sealing {
 public:
  using Bytes = std::vector<std::uint8_t>;
  static constexpr std::size_t kKeyBytes = 64;

  /// `key`: kKeyBytes bytes. Throws Error if OpenSSL lacks AES-256-SIV.
  explicit Sealing(const std::string& key);

  /// The result is 17 bytes longer than `content`. It does not contain `name`, which is needed to
  /// open it.
  Bytes seal(const std::string& name, const Bytes& content) const;
  /// Empty if `sealed` was not made by seal() with this key and name.
  std::optional<Bytes> open(const std::string& name, const Bytes& sealed) const;

 private:
  class Cipher;
  std::shared_ptr<const Cipher> cipher_;
};

}  // namespace lockstep::comm
