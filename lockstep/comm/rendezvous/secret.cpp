#include <lockstep/comm/rendezvous/secret.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

using tcp_store::equal_in_constant_time;

constexpr std::size_t kFewestCharacters = 16;
constexpr const char* kNoSecret = "no secret";

// Encodes a list of arbitrary texts unambiguously: different lists give different transcripts.
std::string transcript_of(const std::vector<std::string>& texts) {
  std::string transcript;
  for (const auto& text : texts) transcript += lockstep::str(text.size(), ':', text);
  return transcript;
}

// Whether the rank that wrote this greeting has a secret.
bool has_secret(const std::string& greeting) {
  return greeting.substr(greeting.find(' ') + 1) != kNoSecret;
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

SecretProof::SecretProof(std::optional<std::string> secret, int rank, int world_rank)
    : secret_(std::move(secret)),
      rank_(static_cast<std::size_t>(rank)),
      greeting_(lockstep::str(world_rank, ' ', secret_ ? tcp_store::fresh_number() : kNoSecret)) {}

// Without the first check, a recorded roll call of an earlier meeting would be accepted together
// with its recorded proofs.
std::optional<std::string> SecretProof::proof(const std::vector<std::string>& greetings,
                                              const std::vector<int>& names) {
  if (rank_ >= greetings.size() || greetings[rank_] != greeting_) {
    throw CommError(lockstep::str(
        "rank ", greeting_.substr(0, greeting_.find(' ')),
        " found another entry than its own in its place of the roll call: another process with its "
        "RANK, or one that does not belong to this job, wrote into the store; end that process, or "
        "choose another MASTER_PORT"));
  }
  for (std::size_t rank = 1; rank < greetings.size(); ++rank) {
    const bool has = has_secret(greetings[rank]);
    if (has == has_secret(greetings[0])) continue;
    throw CommError(lockstep::str("rank ", names[has ? rank : 0],
                                  " was started with LOCKSTEP_SECRET, rank ", names[has ? 0 : rank],
                                  " without; give all ranks the same"));
  }
  if (!secret_) return std::nullopt;
  transcript_ = transcript_of(greetings);
  names_ = names;
  return proof_of(rank_);
}

std::string SecretProof::proof_of(std::size_t rank) const {
  return hmac_sha256(*secret_, lockstep::str("lockstep proof ", rank, ' ', transcript_));
}

std::string SecretProof::key(const std::vector<std::string>& proofs) const {
  LOCKSTEP_CHECK(!names_.empty() && proofs.size() == names_.size(), "the proof comes first");
  for (std::size_t rank = 0; rank < proofs.size(); ++rank) {
    if (equal_in_constant_time(proofs[rank], proof_of(rank))) continue;
    throw CommError(lockstep::str("ranks ", names_[std::min(rank_, rank)], " and ",
                                  names_[std::max(rank_, rank)],
                                  " have different secrets (LOCKSTEP_SECRET); give all ranks the "
                                  "same"));
  }
  return hmac_sha256(*secret_, "lockstep meeting " + transcript_);
}

tcp_store::Mac mac_of(const std::optional<std::string>& secret) {
  if (!secret) return {};
  return [secret = *secret](const std::string& text) { return hmac_sha256(secret, text); };
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
