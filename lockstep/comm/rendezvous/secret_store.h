// A store whose names and contents are encrypted.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/forwarding_store.h>
#include <lockstep/comm/rendezvous/sealing.h>

namespace lockstep::comm {

/// Names are replaced by their HMAC-SHA256. Contents are encrypted together with their names
/// (sealing.h), so every change is noticed, and equal contents of one name stay equal, which
/// compareSet needs. Counters (add) have hidden names but unencrypted values. Throws CommError if
/// the content that it reads was not written with the key. Safe to use from several threads if
/// `store` is.
class SecretStore final : public ForwardingStore<> {
 public:
  /// `key`: 32 bytes.
  SecretStore(c10::intrusive_ptr<c10d::Store> store, const std::string& key);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using ForwardingStore::compareSet;
  using ForwardingStore::set;
  void set(const std::string& name, const Bytes& content) override;
  Bytes compareSet(const std::string& name, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& name) override;
  std::int64_t add(const std::string& name, std::int64_t value) override;
  bool deleteKey(const std::string& name) override;
  bool check(const std::vector<std::string>& names) override;
  void wait(const std::vector<std::string>& names) override;
  void wait(const std::vector<std::string>& names,
            const std::chrono::milliseconds& timeout) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& names) override;
  void multiSet(const std::vector<std::string>& names, const std::vector<Bytes>& contents) override;
  /// Sealed content cannot be appended to.
  bool hasExtendedApi() const override { return false; }

 private:
  SecretStore(c10::intrusive_ptr<c10d::Store> store, const SecretStore& keys);
  std::string hidden(const std::string& name) const;
  std::vector<std::string> hidden(const std::vector<std::string>& names) const;
  Bytes open(const std::string& name, const Bytes& sealed) const;

  std::string name_key_;
  Sealing sealing_;
};

}  // namespace lockstep::comm
