// The secret of a job: who does not know it cannot take part.
//
// A store at a port asks nobody who he is: without a secret whoever reaches the port can join, read
// and change what ranks tell each other. So a meeting point of ours that other machines reach needs
// one, and our own launcher makes one for every job (docs/launching.md). With LOCKSTEP_SECRET in
// the environment of all ranks (a launcher's work; `openssl rand -hex 32` makes one)
//   * every rank proves to every other that it knows the secret, by HMAC-SHA256 over numbers that
//     all ranks drew for this meeting, so that no proof serves twice;
//   * from then on names and contents of what lies in the store are encrypted (secret_store.h)
//     with a key that is new for every meeting. TCPStore lists its keys to whoever asks: a prefix
//     that is hard to guess would hide nothing.
// Who reaches the port can still end the job, by taking a rank's place before the proof or by
// deleting or overwriting keys: that is an error on the ranks, never a stranger's data. What
// travels later between ranks over Gloo or NCCL is not encrypted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep {

/// LOCKSTEP_SECRET. ConfigError for one of fewer than 16 characters: it could be guessed.
std::optional<std::string> job_secret();

/// What a rank says first: a fresh random number, or that it has no secret.
std::string secret_greeting(const std::optional<std::string>& secret);

/// Collective; `greetings` are those of all ranks, in their order, which errors call by the names
/// of `exchange`. The key of this meeting, 32 bytes; nothing where no rank has a secret. CommError,
/// on all ranks, names the rank that has none or another.
std::optional<std::string> prove_secret(TextExchange& exchange,
                                        const std::vector<std::string>& greetings,
                                        const std::optional<std::string>& secret);

/// 32 bytes.
std::string hmac_sha256(const std::string& key, const std::string& text);

}  // namespace lockstep
