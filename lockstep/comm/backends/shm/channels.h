// Point-to-point messages through one ring of bytes for each direction between two ranks.
//
// A message is a header followed by its bytes. A message longer than the ring is streamed: the
// sender writes while the receiver reads. The receiver matches messages by (source, tag) in the
// order of its calls. A message that arrives before its receive call and blocks another message is
// moved to a buffer (a Stray).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/sharing_cost.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::shm {

/// One send or receive. The engine writes it under its lock; any thread may read `done`.
struct Transfer {
  CallDescription call;  ///< kSend or kRecv; root is the peer, -1 for any source
  int tag = 0;
  std::uint32_t fingerprint = 0;  ///< the fingerprint of the message's collective; 0: none
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> keep_alive;
  std::size_t moved = 0;  ///< bytes moved so far
  bool header_moved = false;
  int source = -1;  ///< the sender, once a receive has begun
  std::atomic<bool> done = false;
};

/// One rank's ends of all its channels. Not thread-safe: the engine's lock guards it.
class Channels {
 public:
  /// `world_ranks` are the ranks' names in error messages (see EngineOptions).
  Channels(const Control& control, int rank, SharingCost& sharing_cost,
           const std::vector<int>& world_ranks);

  void post(std::shared_ptr<Transfer> transfer);

  /// Moves all bytes that can be moved; returns whether there were any. Sets `mismatch` when the
  /// two sides of a message gave different sizes, types or fingerprints.
  bool advance(std::string& mismatch);

  /// Whether every transfer has completed and no mismatch is waiting to be reported.
  bool idle() const {
    return sends_under_way_ == 0 && receives_.empty() && claimed_ == 0 && early_mismatch_.empty();
  }
  /// Appends the words that transfers wait for.
  void awaited_words(std::vector<comm::AwaitedWord>& words) const;
  /// Whether this transfer can progress only if rank `peer` acts.
  static bool needs(const Transfer& transfer, int peer);

 private:
  struct Header {
    std::uint64_t bytes = 0;
    std::int32_t tag = 0;
    std::uint32_t fingerprint = 0;
    detail::DataType type = detail::DataType::kByte;
    std::uint8_t padding[15] = {};
  };
  static_assert(sizeof(Header) == 32);

  // A message that arrived before its receive call.
  struct Stray {
    Header header;
    std::vector<std::byte> memory;
    std::size_t moved = 0;
    std::shared_ptr<Transfer> claimed;  // the receive that was posted while it was arriving
    bool complete() const { return moved == header.bytes; }
  };

  struct Outgoing {
    std::deque<std::shared_ptr<Transfer>> queue;
    std::uint32_t written = 0;
    std::uint32_t read = 0;  // a lower bound on what the peer has read
  };
  struct Incoming {
    std::uint32_t read = 0;
    std::shared_ptr<Transfer> transfer;  // the receive whose message is under way
    bool into_stray = false;             // the message under way goes to the last stray
    std::deque<Stray> strays;
  };

  bool advance_send(int peer);
  std::size_t room(int peer, std::size_t wanted);
  bool advance_receive(int peer, std::string& mismatch);
  bool begin_message(int peer, std::string& mismatch);
  bool move_message(int peer);
  bool take_stray(Transfer& transfer, const std::shared_ptr<Transfer>& shared,
                  std::string& mismatch);
  void finish(const std::shared_ptr<Transfer>& transfer);
  bool wanted_elsewhere(int peer) const;
  int name(int rank) const {
    return world_ranks_.empty() ? rank : world_ranks_[static_cast<std::size_t>(rank)];
  }
  std::string check(const Header& header, int source, const Transfer& transfer) const;

  std::size_t put(int peer, const std::byte* data, std::size_t bytes, std::uint32_t written,
                  bool streamed);
  std::size_t take(int peer, std::byte* data, std::size_t bytes, std::uint32_t read, bool streamed);

  const Control& control_;
  SharingCost& sharing_cost_;
  const std::vector<int>& world_ranks_;
  const int rank_;
  const int size_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::deque<std::shared_ptr<Transfer>> receives_;  // not yet begun, in the order of the calls
  std::size_t sends_under_way_ = 0;
  std::size_t claimed_ = 0;  // number of receives whose message is arriving as a stray
  std::string early_mismatch_;
};

}  // namespace lockstep::shm
