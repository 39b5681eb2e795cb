// How the two ends of a connection to rank 0's store prove to each other that they know the secret
// of their job. Each draws a random number; first the client and then the store shows a keyed hash
// of both numbers. The numbers make every proof new, so that a recorded one is worth nothing.
#pragma once

#include <functional>
#include <string>

namespace lockstep::tcp_store {

/// A keyed hash: only processes that know the job's secret can compute it. Empty: the job has no
/// secret. Must be safe to call from several threads.
using Mac = std::function<std::string(const std::string& text)>;

inline constexpr std::size_t kNumberBytes = 32;

/// kNumberBytes random bytes. Throws Error if the kernel gives none.
std::string fresh_number();

/// The two proofs differ, so that neither end can send back what it was sent. Both numbers must
/// have kNumberBytes.
std::string client_proof(const Mac& mac, const std::string& client_number,
                         const std::string& store_number);
std::string store_proof(const Mac& mac, const std::string& client_number,
                        const std::string& store_number);

/// Compares without revealing, by its duration, where the texts differ.
bool equal_in_constant_time(const std::string& a, const std::string& b);

}  // namespace lockstep::tcp_store
