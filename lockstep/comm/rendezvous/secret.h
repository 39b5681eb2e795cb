// The secret of a job: only processes that know it can take part.
//
// A store does not authenticate its clients: without a secret, any process that reaches the port
// can join, and can read and change the ranks' messages. A meeting point that rank 0 serves and
// other machines can reach therefore needs a secret; Lockstep's launcher makes one for every job
// (docs/launching.md). With LOCKSTEP_SECRET in the environment of all ranks (set by a launcher;
// `openssl rand -hex 32` makes one):
//   * a store that rank 0 serves admits only connections that have proven the secret
//     (store/proof.h);
//   * every rank proves to every other that it knows the secret (SecretProof), whoever serves the
//     store;
//   * afterwards the names and contents of all entries in the store are encrypted (secret_store.h)
//     with a key that is new for every meeting. TCPStore lists its entries to anyone who asks, so a
//     prefix that is hard to guess would hide nothing;
//   * over Gloo, the two ends of every connection prove to each other that they are the ranks they
//     claim to be (backends/gloo/prove_peers.h). What travels afterwards over Gloo or NCCL is not
//     encrypted.
// docs/adr/009-a-secret-off-loopback.md has the protocol, its guarantees, and what it does not
// protect from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/store/proof.h>

namespace lockstep::comm {

/// The value of LOCKSTEP_SECRET, if set. Throws ConfigError if it has fewer than 16 characters,
/// because it could then be guessed.
std::optional<std::string> job_secret();

/// One rank's part in a meeting in which all ranks prove that they know the secret. Does not
/// communicate: the rank publishes greeting(), gives the greetings of all ranks to proof(),
/// publishes its result, and gives the proofs of all ranks to key().
///
/// A rank signs only a roll call that contains the random number that the rank has drawn for this
/// meeting, and accepts only proofs of the roll call that it has signed. If key() returns, each
/// rank's proof was therefore made by a process that knows the secret, in this meeting, and all
/// ranks have the same key, which no other meeting has. Not thread-safe.
class SecretProof {
 public:
  /// `rank` is this rank's number in the group, `world_rank` in the first group. Draws a random
  /// number if there is a secret.
  SecretProof(std::optional<std::string> secret, int rank, int world_rank);

  /// This rank's entry in the roll call: its rank in the first group, and its random number or a
  /// marker that it has no secret.
  const std::string& greeting() const { return greeting_; }

  /// The proof that this rank knows the secret, for the roll call with the greetings of all ranks;
  /// empty if no rank has a secret. `names` are the ranks' numbers in the first group, for
  /// messages. Throws CommError if this rank's greeting is not in its place, or if only some ranks
  /// have a secret.
  std::optional<std::string> proof(const std::vector<std::string>& greetings,
                                   const std::vector<int>& names);

  /// The key of this meeting, 32 bytes, once every rank's proof is right. Requires proof(). Throws
  /// CommError if a rank has a different secret.
  std::string key(const std::vector<std::string>& proofs) const;

 private:
  std::string proof_of(std::size_t rank) const;

  const std::optional<std::string> secret_;
  const std::size_t rank_;
  const std::string greeting_;
  std::string transcript_;  // the greetings of all ranks, once this rank has signed them
  std::vector<int> names_;
};

/// What a connection proves with `secret`; empty without one.
tcp_store::Mac mac_of(const std::optional<std::string>& secret);

/// Returns 32 bytes.
std::string hmac_sha256(const std::string& key, const std::string& text);

}  // namespace lockstep::comm
