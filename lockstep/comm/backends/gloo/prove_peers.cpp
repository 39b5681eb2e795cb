#include <lockstep/comm/backends/gloo/prove_peers.h>

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include <lockstep/comm/rendezvous/secret.h>
#include <lockstep/comm/store/proof.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {
namespace {

constexpr const char* kConnectionKey = "key of the connections";

// Both the random numbers and the proofs have this length.
constexpr std::size_t kTextBytes = tcp_store::kNumberBytes;

// Collective. Sends each member its text, and returns theirs. No collective is under way, so that
// the tag of collective `round` is free.
std::vector<std::string> swap_texts(comm::Backend& backend, std::uint64_t round, int rank,
                                    const std::vector<std::string>& texts,
                                    const Deadline& deadline) {
  const auto tag = comm::MessageTag::of_collective(round, comm::fingerprint("proof of the peers"));
  std::vector<torch::Tensor> received;
  std::vector<std::shared_ptr<Work>> works;
  for (int peer = 0; peer < std::ssize(texts); ++peer) {
    received.push_back(torch::zeros({static_cast<std::int64_t>(kTextBytes)}, torch::kUInt8));
    if (peer == rank) continue;
    const std::string& text = texts[static_cast<std::size_t>(peer)];
    auto message = torch::empty({static_cast<std::int64_t>(kTextBytes)}, torch::kUInt8);
    std::copy_n(text.begin(), kTextBytes, message.mutable_data_ptr<std::uint8_t>());
    works.push_back(backend.recv(received.back(), peer, tag));
    works.push_back(backend.send(message, peer, tag));
  }
  for (const auto& work : works) {
    work->wait(std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
  }
  std::vector<std::string> theirs;
  for (const auto& each : received) {
    const auto* const bytes = each.const_data_ptr<std::uint8_t>();
    theirs.emplace_back(bytes, bytes + kTextBytes);
  }
  return theirs;
}

}  // namespace

std::string shared_key(c10d::Store& store, int rank) {
  if (rank == 0) store.set(kConnectionKey, comm::store_bytes(tcp_store::fresh_number()));
  return comm::store_text(store.get(kConnectionKey));
}

void prove_peers(comm::Backend& backend, const std::string& key, int rank,
                 const std::vector<int>& names, std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  const int size = static_cast<int>(names.size());
  std::vector<std::string> own;
  for (int peer = 0; peer < size; ++peer) own.push_back(tcp_store::fresh_number());
  const auto theirs = swap_texts(backend, 0, rank, own, deadline);
  // The proof of `from` for `to`. The numbers are those of this rank and of `peer`.
  const auto proof = [&](int from, int to, std::size_t peer) {
    const std::string& first = from == rank ? own[peer] : theirs[peer];
    const std::string& second = from == rank ? theirs[peer] : own[peer];
    return comm::hmac_sha256(key, str("lockstep gloo ", from, ' ', to, ' ', first, second));
  };
  std::vector<std::string> shown;
  for (int peer = 0; peer < size; ++peer) {
    shown.push_back(proof(rank, peer, static_cast<std::size_t>(peer)));
  }
  const auto proofs = swap_texts(backend, 1, rank, shown, deadline);
  for (int peer = 0; peer < size; ++peer) {
    const auto place = static_cast<std::size_t>(peer);
    if (peer == rank ||
        tcp_store::equal_in_constant_time(proofs[place], proof(peer, rank, place))) {
      continue;
    }
    const std::string reason =
        str("rank ", names[static_cast<std::size_t>(rank)], ": the process that connected as rank ",
            names[place],
            " over Gloo is not that rank: a process that does not belong to the job "
            "reaches the ports of its ranks; end it, or let a firewall keep it away");
    backend.abort(reason);
    throw CommError(reason);
  }
}

}  // namespace lockstep::gloo
