// The secret of a job: only processes that know it can take part.
//
// A store does not authenticate its clients: without a secret, any process that reaches the port
// can join, and can read and change the ranks' messages. A meeting point that rank 0 serves and
// other machines can reach therefore needs a secret; Lockstep's launcher makes one for every job
// (docs/launching.md). With LOCKSTEP_SECRET in the environment of all ranks (set by a launcher;
// `openssl rand -hex 32` makes one):
//   * every rank proves to every other that it knows the secret, by HMAC-SHA256 over random numbers
//     that all ranks drew for this meeting, so that a proof cannot be replayed;
//   * afterwards the names and contents of all entries in the store are encrypted (secret_store.h)
//     with a key that is new for every meeting. TCPStore lists its entries to anyone who asks, so a
//     prefix that is hard to guess would hide nothing.
// A process that reaches the port can still end the job, by taking a rank's place before the proof
// or by deleting or overwriting keys. That causes an error on the ranks, but never makes them
// accept forged data. Later traffic between ranks over Gloo or NCCL is not encrypted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep::comm {

/// The value of LOCKSTEP_SECRET, if set. Throws ConfigError if it has fewer than 16 characters,
/// because it could then be guessed.
std::optional<std::string> job_secret();

/// A rank's first message: a fresh random number, or a marker that it has no secret.
std::string secret_greeting(const std::optional<std::string>& secret);

/// Collective. `greetings` are those of all ranks, in rank order; errors name the ranks as
/// `exchange` does. Returns the key of this meeting, 32 bytes, or nothing if no rank has a secret.
/// If a rank has no secret or a different one, throws CommError on all ranks, naming that rank.
std::optional<std::string> prove_secret(TextExchange& exchange,
                                        const std::vector<std::string>& greetings,
                                        const std::optional<std::string>& secret);

/// Returns 32 bytes.
std::string hmac_sha256(const std::string& key, const std::string& text);

}  // namespace lockstep::comm
