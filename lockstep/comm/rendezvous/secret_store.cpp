#include <lockstep/comm/rendezvous/secret_store.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <memory>
#include <utility>

#include <lockstep/comm/rendezvous/secret.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

constexpr std::size_t kTagBytes = 16;

}  // namespace

SecretStore::SecretStore(c10::intrusive_ptr<c10d::Store> store, const std::string& key)
    : store_(std::move(store)),
      name_key_(hmac_sha256(key, "names")),
      tag_key_(hmac_sha256(key, "tags")),
      content_key_(hmac_sha256(key, "contents")) {}

SecretStore::SecretStore(c10::intrusive_ptr<c10d::Store> store, const SecretStore& keys)
    : store_(std::move(store)),
      name_key_(keys.name_key_),
      tag_key_(keys.tag_key_),
      content_key_(keys.content_key_) {}

c10::intrusive_ptr<c10d::Store> SecretStore::clone() {
  return c10::intrusive_ptr<SecretStore>::reclaim(new SecretStore(store_->clone(), *this));
}

// --- Sealing
// ---------------------------------------------------------------------------------------

std::string SecretStore::hidden(const std::string& name) const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : hmac_sha256(name_key_, name)) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::vector<std::string> SecretStore::hidden(const std::vector<std::string>& names) const {
  std::vector<std::string> all;
  for (const auto& name : names) all.push_back(hidden(name));
  return all;
}

std::string SecretStore::tag(const std::string& name, const Bytes& content) const {
  std::string text = lockstep::str(name.size(), ':', name);
  text.append(content.begin(), content.end());
  return hmac_sha256(tag_key_, text).substr(0, kTagBytes);
}

// Counter mode: the same call encrypts and decrypts.
SecretStore::Bytes SecretStore::encrypt(const std::uint8_t* data, std::size_t size,
                                        const std::string& tag) const {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  Bytes result(size);
  int length = 0;
  const bool done =
      context &&
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_ctr(), nullptr,
                         reinterpret_cast<const unsigned char*>(content_key_.data()),
                         reinterpret_cast<const unsigned char*>(tag.data())) == 1 &&
      EVP_EncryptUpdate(context.get(), result.data(), &length, data, static_cast<int>(size)) == 1;
  LOCKSTEP_CHECK(done && length == static_cast<int>(size), "AES-256-CTR failed");
  return result;
}

SecretStore::Bytes SecretStore::seal(const std::string& name, const Bytes& content) const {
  const std::string synthetic = tag(name, content);
  const Bytes encrypted = encrypt(content.data(), content.size(), synthetic);
  Bytes sealed(synthetic.begin(), synthetic.end());
  sealed.insert(sealed.end(), encrypted.begin(), encrypted.end());
  return sealed;
}

SecretStore::Bytes SecretStore::open(const std::string& name, const Bytes& sealed) const {
  if (sealed.size() >= kTagBytes) {
    const std::string claimed(sealed.begin(), sealed.begin() + kTagBytes);
    Bytes content = encrypt(sealed.data() + kTagBytes, sealed.size() - kTagBytes, claimed);
    if (CRYPTO_memcmp(tag(name, content).data(), claimed.data(), kTagBytes) == 0) return content;
  }
  throw CommError("somebody who does not know LOCKSTEP_SECRET wrote into the store of this job");
}

// --- The store
// ---------------------------------------------------------------------------------------

void SecretStore::set(const std::string& name, const Bytes& content) {
  store_->set(hidden(name), seal(name, content));
}

SecretStore::Bytes SecretStore::compareSet(const std::string& name, const Bytes& expected,
                                           const Bytes& desired) {
  // Nothing expected: the name must not exist yet.
  const Bytes before = expected.empty() ? expected : seal(name, expected);
  const Bytes now = store_->compareSet(hidden(name), before, seal(name, desired));
  return now.empty() ? now : open(name, now);
}

SecretStore::Bytes SecretStore::get(const std::string& name) {
  return open(name, store_->get(hidden(name)));
}

std::int64_t SecretStore::add(const std::string& name, std::int64_t value) {
  return store_->add(hidden(name), value);
}

bool SecretStore::deleteKey(const std::string& name) { return store_->deleteKey(hidden(name)); }

bool SecretStore::check(const std::vector<std::string>& names) {
  return store_->check(hidden(names));
}

std::int64_t SecretStore::getNumKeys() { return store_->getNumKeys(); }

void SecretStore::wait(const std::vector<std::string>& names) { store_->wait(hidden(names)); }

void SecretStore::wait(const std::vector<std::string>& names,
                       const std::chrono::milliseconds& timeout) {
  store_->wait(hidden(names), timeout);
}

const std::chrono::milliseconds& SecretStore::getTimeout() const noexcept {
  return store_->getTimeout();
}

void SecretStore::setTimeout(const std::chrono::milliseconds& timeout) {
  store_->setTimeout(timeout);
}

std::vector<SecretStore::Bytes> SecretStore::multiGet(const std::vector<std::string>& names) {
  std::vector<Bytes> contents = store_->multiGet(hidden(names));
  for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = open(names[i], contents[i]);
  return contents;
}

void SecretStore::multiSet(const std::vector<std::string>& names,
                           const std::vector<Bytes>& contents) {
  for (std::size_t i = 0; i < names.size(); ++i) set(names[i], contents[i]);
}

}  // namespace lockstep
