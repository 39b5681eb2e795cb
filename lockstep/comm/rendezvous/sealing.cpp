#include <lockstep/comm/rendezvous/sealing.h>

#include <openssl/evp.h>

#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

constexpr std::size_t kSyntheticIvBytes = 16;

using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

CipherContext make_context() { return {EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free}; }

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

class Sealing::Cipher {
 public:
  explicit Cipher(const std::string& key)
      : key_(key), algorithm_(EVP_CIPHER_fetch(nullptr, "AES-256-SIV", nullptr), &EVP_CIPHER_free) {
    LOCKSTEP_CHECK(key.size() == kKeyBytes, "a key of ", key.size(), " bytes");
    LOCKSTEP_CHECK(algorithm_ != nullptr, "OpenSSL has no AES-256-SIV");
  }

  enum Direction : int { kOpen = 0, kSeal = 1 };  // the values of EVP_CipherInit_ex()

  /// `name` is authenticated with the content, which follows.
  bool begin(EVP_CIPHER_CTX* context, Direction direction, const std::string& name) const {
    int length = 0;
    return context != nullptr &&
           EVP_CipherInit_ex(context, algorithm_.get(), nullptr, bytes_of(key_), nullptr,
                             direction) == 1 &&
           EVP_CipherUpdate(context, nullptr, &length, bytes_of(name),
                            static_cast<int>(name.size())) == 1;
  }

 private:
  const std::string key_;
  const std::unique_ptr<EVP_CIPHER, decltype(&EVP_CIPHER_free)> algorithm_;
};

Sealing::Sealing(const std::string& key) : cipher_(std::make_shared<const Cipher>(key)) {}

// OpenSSL 3.0 ignores empty names and contents (CVE-2023-2975). A prepended byte keeps both from
// being empty.
Sealing::Bytes Sealing::seal(const std::string& name, const Bytes& content) const {
  Bytes plain(1, 0);
  plain.insert(plain.end(), content.begin(), content.end());
  Bytes sealed(kSyntheticIvBytes + plain.size());
  const CipherContext context = make_context();
  int length = 0;
  const bool done = cipher_->begin(context.get(), Cipher::kSeal, '/' + name) &&
                    EVP_EncryptUpdate(context.get(), sealed.data() + kSyntheticIvBytes, &length,
                                      plain.data(), static_cast<int>(plain.size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG,
                                        static_cast<int>(kSyntheticIvBytes), sealed.data()) == 1;
  LOCKSTEP_CHECK(done && length == static_cast<int>(plain.size()), "AES-256-SIV failed");
  return sealed;
}

std::optional<Sealing::Bytes> Sealing::open(const std::string& name, const Bytes& sealed) const {
  if (sealed.size() <= kSyntheticIvBytes) return std::nullopt;
  Bytes plain(sealed.size() - kSyntheticIvBytes);
  Bytes synthetic(sealed.begin(), sealed.begin() + kSyntheticIvBytes);
  const CipherContext context = make_context();
  int length = 0;
  // OpenSSL takes the synthetic IV before the content and verifies it at the end.
  const bool begun =
      cipher_->begin(context.get(), Cipher::kOpen, '/' + name) &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kSyntheticIvBytes),
                          synthetic.data()) == 1;
  LOCKSTEP_CHECK(begun, "AES-256-SIV failed");
  const bool genuine =
      EVP_DecryptUpdate(context.get(), plain.data(), &length, sealed.data() + kSyntheticIvBytes,
                        static_cast<int>(plain.size())) == 1 &&
      length == static_cast<int>(plain.size());
  if (!genuine) return std::nullopt;
  plain.erase(plain.begin());
  return plain;
}

}  // namespace lockstep::comm
