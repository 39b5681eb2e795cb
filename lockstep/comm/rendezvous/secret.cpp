#include <lockstep/comm/rendezvous/secret.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

constexpr std::size_t kFewestCharacters = 16;
constexpr const char* kNoSecret = "no secret";

// Encodes a list of arbitrary texts unambiguously: different lists give different transcripts.
std::string transcript_of(const std::vector<std::string>& texts) {
  std::string transcript;
  for (const auto& text : texts) transcript += lockstep::str(text.size(), ':', text);
  return transcript;
}

std::string proof(const std::string& secret, std::size_t rank, const std::string& transcript) {
  return hmac_sha256(secret, lockstep::str("lockstep proof ", rank, ' ', transcript));
}

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::optional<std::string> job_secret() {
  auto secret = environment_string("LOCKSTEP_SECRET");
  if (secret && secret->size() < kFewestCharacters) {
    throw ConfigError(lockstep::str("LOCKSTEP_SECRET has ", secret->size(),
                                    " characters, expected at least ", kFewestCharacters,
                                    "; make one with: openssl rand -hex 32"));
  }
  return secret;
}

std::string secret_greeting(const std::optional<std::string>& secret) {
  if (!secret) return kNoSecret;
  std::string nonce(32, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1) {
    throw CommError("no random numbers for the proof of LOCKSTEP_SECRET");
  }
  return nonce;
}

std::optional<std::string> prove_secret(TextExchange& exchange,
                                        const std::vector<std::string>& greetings,
                                        const std::optional<std::string>& secret) {
  const std::vector<int>& names = exchange.world_ranks();
  for (std::size_t rank = 1; rank < greetings.size(); ++rank) {
    const bool has = greetings[rank] != kNoSecret;
    if (has == (greetings[0] != kNoSecret)) continue;
    throw CommError(lockstep::str("rank ", names[has ? rank : 0],
                                  " was started with LOCKSTEP_SECRET, rank ", names[has ? 0 : rank],
                                  " without; give all ranks the same"));
  }
  if (!secret) return std::nullopt;
  const std::string transcript = transcript_of(greetings);
  const auto own = static_cast<std::size_t>(exchange.rank());
  const auto proofs = exchange.exchange("proof of the secret", proof(*secret, own, transcript));
  for (std::size_t rank = 0; rank < proofs.size(); ++rank) {
    if (equal_in_constant_time(proofs[rank], proof(*secret, rank, transcript))) continue;
    throw CommError(
        lockstep::str("ranks ", names[std::min(own, rank)], " and ", names[std::max(own, rank)],
                      " have different secrets (LOCKSTEP_SECRET); give all ranks the same"));
  }
  return hmac_sha256(*secret, "lockstep meeting " + transcript);
}

std::string hmac_sha256(const std::string& key, const std::string& text) {
  std::string code(32, '\0');
  unsigned int length = 0;
  const auto* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(code.data()), &length);
  LOCKSTEP_CHECK(done != nullptr && length == code.size(), "HMAC-SHA256 failed");
  return code;
}

}  // namespace lockstep::comm
