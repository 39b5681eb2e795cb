// A store whose names and contents are encrypted.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep {

/// Names become their HMAC-SHA256; contents are encrypted with AES-256 in counter mode under a
/// synthetic initial value, the first 16 bytes of the HMAC-SHA256 of name and content (the
/// construction of SIV, Rogaway & Shrimpton 2006): equal contents of one name look alike, which
/// compareSet needs, and every change is noticed. Counters (add) have hidden names but open values.
/// CommError where a content was not written with the key. Safe to use from several threads if
/// `store` is.
class SecretStore final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// `key`: 32 bytes.
  SecretStore(c10::intrusive_ptr<c10d::Store> store, const std::string& key);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using Store::compareSet;
  using Store::set;
  void set(const std::string& name, const Bytes& content) override;
  Bytes compareSet(const std::string& name, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& name) override;
  std::int64_t add(const std::string& name, std::int64_t value) override;
  bool deleteKey(const std::string& name) override;
  bool check(const std::vector<std::string>& names) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& names) override;
  void wait(const std::vector<std::string>& names,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& names) override;
  void multiSet(const std::vector<std::string>& names, const std::vector<Bytes>& contents) override;
  bool hasExtendedApi() const override {
    return false;
  }  // nothing can be appended to a sealed content

 private:
  SecretStore(c10::intrusive_ptr<c10d::Store> store, const SecretStore& keys);
  std::string hidden(const std::string& name) const;
  std::vector<std::string> hidden(const std::vector<std::string>& names) const;
  std::string tag(const std::string& name, const Bytes& content) const;
  Bytes seal(const std::string& name, const Bytes& content) const;
  Bytes open(const std::string& name, const Bytes& sealed) const;
  Bytes encrypt(const std::uint8_t* data, std::size_t size, const std::string& tag) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string name_key_;
  std::string tag_key_;
  std::string content_key_;
};

}  // namespace lockstep
