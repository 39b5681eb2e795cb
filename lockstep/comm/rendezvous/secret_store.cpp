#include <lockstep/comm/rendezvous/secret_store.h>

#include <utility>

#include <lockstep/comm/rendezvous/secret.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {

SecretStore::SecretStore(c10::intrusive_ptr<c10d::Store> store, const std::string& key)
    : ForwardingStore(std::move(store)),
      name_key_(hmac_sha256(key, "names")),
      sealing_(hmac_sha256(key, "contents, first half") +
               hmac_sha256(key, "contents, second half")) {}

SecretStore::SecretStore(c10::intrusive_ptr<c10d::Store> store, const SecretStore& keys)
    : ForwardingStore(std::move(store)), name_key_(keys.name_key_), sealing_(keys.sealing_) {}

c10::intrusive_ptr<c10d::Store> SecretStore::clone() {
  return c10::intrusive_ptr<SecretStore>::reclaim(new SecretStore(store().clone(), *this));
}

std::string SecretStore::hidden(const std::string& name) const {
  return hex_text(hmac_sha256(name_key_, name));
}

std::vector<std::string> SecretStore::hidden(const std::vector<std::string>& names) const {
  std::vector<std::string> all;
  for (const auto& name : names) all.push_back(hidden(name));
  return all;
}

SecretStore::Bytes SecretStore::open(const std::string& name, const Bytes& sealed) const {
  if (auto content = sealing_.open(name, sealed)) return *std::move(content);
  throw CommError(
      "an entry in the store of this job was written by a process that does not know "
      "LOCKSTEP_SECRET");
}

void SecretStore::set(const std::string& name, const Bytes& content) {
  ForwardingStore::set(hidden(name), sealing_.seal(name, content));
}

SecretStore::Bytes SecretStore::compareSet(const std::string& name, const Bytes& expected,
                                           const Bytes& desired) {
  // An empty `expected` means that the name must not exist yet.
  const Bytes before = expected.empty() ? expected : sealing_.seal(name, expected);
  const Bytes now = ForwardingStore::compareSet(hidden(name), before, sealing_.seal(name, desired));
  return now.empty() ? now : open(name, now);
}

SecretStore::Bytes SecretStore::get(const std::string& name) {
  return open(name, ForwardingStore::get(hidden(name)));
}

std::int64_t SecretStore::add(const std::string& name, std::int64_t value) {
  return ForwardingStore::add(hidden(name), value);
}

bool SecretStore::deleteKey(const std::string& name) {
  return ForwardingStore::deleteKey(hidden(name));
}

bool SecretStore::check(const std::vector<std::string>& names) {
  return ForwardingStore::check(hidden(names));
}

void SecretStore::wait(const std::vector<std::string>& names) {
  ForwardingStore::wait(hidden(names));
}

void SecretStore::wait(const std::vector<std::string>& names,
                       const std::chrono::milliseconds& timeout) {
  ForwardingStore::wait(hidden(names), timeout);
}

std::vector<SecretStore::Bytes> SecretStore::multiGet(const std::vector<std::string>& names) {
  std::vector<Bytes> contents = ForwardingStore::multiGet(hidden(names));
  for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = open(names[i], contents[i]);
  return contents;
}

void SecretStore::multiSet(const std::vector<std::string>& names,
                           const std::vector<Bytes>& contents) {
  for (std::size_t i = 0; i < names.size(); ++i) set(names[i], contents[i]);
}

}  // namespace lockstep::comm
