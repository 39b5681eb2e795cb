#include <lockstep/comm/backends/shm/channels.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <lockstep/comm/kernels/copy.h>
#include <lockstep/core/strings.h>

namespace lockstep::shm {
namespace {

// The writer publishes its progress this many times per ring, so that the reader works in parallel.
constexpr std::size_t kPiecesOfRing = 8;

// The sharing cost is sampled only for messages of at least this size, which are less sensitive to
// latency.
constexpr std::size_t kLeastNoted = 4096;

void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool streamed) {
  if (streamed) {
    comm::copy_streaming(to, from, bytes);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

bool matches(const Transfer& transfer, int source, int tag) {
  return transfer.tag == tag && (transfer.call.root < 0 || transfer.call.root == source);
}

// Both accesses are seq_cst so that the store is not reordered after the load of `sleepers`.
void publish(Word& word, Word& sleepers, std::uint32_t value) {
  word.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(word);
}

}  // namespace

Channels::Channels(const Control& control, int rank, SharingCost& sharing_cost,
                   const std::vector<int>& world_ranks)
    : control_(control),
      sharing_cost_(sharing_cost),
      world_ranks_(world_ranks),
      rank_(rank),
      size_(control.size()),
      outgoing_(static_cast<std::size_t>(control.size())),
      incoming_(static_cast<std::size_t>(control.size())) {}

void Channels::post(std::shared_ptr<Transfer> transfer) {
  if (transfer->call.kind == CallKind::kSend) {
    outgoing_[static_cast<std::size_t>(transfer->call.root)].queue.push_back(std::move(transfer));
    ++sends_under_way_;
  } else if (!take_stray(*transfer, transfer, early_mismatch_)) {
    receives_.push_back(std::move(transfer));
  }
}

bool Channels::advance(std::string& mismatch) {
  if (!early_mismatch_.empty()) [[unlikely]]
    mismatch = std::exchange(early_mismatch_, {});
  bool moved = false;
  for (int peer = 0; peer < size_ && mismatch.empty(); ++peer) {
    if (peer == rank_) continue;
    if (sends_under_way_ > 0) moved = advance_send(peer) || moved;
    const bool arriving = incoming_[static_cast<std::size_t>(peer)].into_stray;
    if (!receives_.empty() || claimed_ > 0 || arriving) {
      moved = advance_receive(peer, mismatch) || moved;
    }
  }
  return moved;
}

bool Channels::needs(const Transfer& transfer, int peer) {
  if (transfer.source >= 0) return transfer.source == peer;
  return transfer.call.root < 0 || transfer.call.root == peer;
}

void Channels::awaited_words(std::vector<comm::AwaitedWord>& words) const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto p = static_cast<std::size_t>(peer);
    if (!outgoing_[p].queue.empty()) {
      Channel& channel = control_.channel(rank_, peer);
      words.push_back(
          {&channel.read, channel.read.load(std::memory_order_relaxed), &channel.read_sleepers});
    }
    if (incoming_[p].transfer || incoming_[p].into_stray || wanted_elsewhere(peer)) {
      Channel& channel = control_.channel(peer, rank_);
      words.push_back({&channel.written, channel.written.load(std::memory_order_relaxed),
                       &channel.written_sleepers});
    }
  }
}

// --- Sending -------------------------------------------------------------------------------------

bool Channels::advance_send(int peer) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(peer)];
  bool moved = false;
  while (!out.queue.empty()) {
    Transfer& transfer = *out.queue.front();
    Channel& channel = control_.channel(rank_, peer);
    if (!transfer.header_moved) {
      if (room(peer, sizeof(Header)) < sizeof(Header)) return moved;
      Header header;
      header.bytes = transfer.bytes;
      header.tag = transfer.tag;
      header.fingerprint = transfer.fingerprint;
      header.type = transfer.call.type;
      out.written += put(peer, reinterpret_cast<const std::byte*>(&header), sizeof(header),
                         out.written, false);
      transfer.header_moved = true;
      moved = true;
    }
    const bool streamed = transfer.bytes >= SharingCost::kLeastBytes &&
                          SharingCost::is_dear(control_.state(peer).sharing_cost);
    while (transfer.moved < transfer.bytes) {
      const std::size_t most =
          std::min(transfer.bytes - transfer.moved, control_.ring_bytes() / kPiecesOfRing);
      const std::size_t piece = std::min(room(peer, most), most);
      if (piece == 0) break;
      out.written += put(peer, transfer.data + transfer.moved, piece, out.written, streamed);
      transfer.moved += piece;
      publish(channel.written, channel.written_sleepers, out.written);
      moved = true;
    }
    if (transfer.moved < transfer.bytes) {
      publish(channel.written, channel.written_sleepers, out.written);
      return moved;
    }
    if (transfer.bytes == 0) publish(channel.written, channel.written_sleepers, out.written);
    finish(out.queue.front());
    out.queue.pop_front();
    --sends_under_way_;
  }
  return moved;
}

// The free bytes of the ring to `peer`. Reads the peer's counter only if its last known value
// leaves less than `wanted`, because the peer writes that cache line for each message.
std::size_t Channels::room(int peer, std::size_t wanted) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(peer)];
  const auto left = [&] { return control_.ring_bytes() - (out.written - out.read); };
  if (left() < wanted)
    out.read = control_.channel(rank_, peer).read.load(std::memory_order_acquire);
  return left();
}

std::size_t Channels::put(int peer, const std::byte* data, std::size_t bytes, std::uint32_t written,
                          bool streamed) {
  std::byte* const ring = control_.ring(rank_, peer);
  const std::size_t at = written % control_.ring_bytes();
  const std::size_t first = std::min(bytes, control_.ring_bytes() - at);
  copy(ring + at, data, first, streamed);
  copy(ring, data + first, bytes - first, streamed);
  return bytes;
}

// --- Receiving -----------------------------------------------------------------------------------

bool Channels::advance_receive(int peer, std::string& mismatch) {
  const Incoming& in = incoming_[static_cast<std::size_t>(peer)];
  bool moved = false;
  for (;;) {
    if (!in.transfer && !in.into_stray && !begin_message(peer, mismatch)) return moved;
    const bool more = move_message(peer);
    moved = moved || more;
    if (in.transfer || in.into_stray) return moved;  // the rest has not arrived yet
  }
}

// Whether any receive call waits for a message from this peer.
bool Channels::wanted_elsewhere(int peer) const {
  return std::any_of(receives_.begin(), receives_.end(), [&](const auto& receive) {
    return receive->call.root < 0 || receive->call.root == peer;
  });
}

bool Channels::begin_message(int peer, std::string& mismatch) {
  Incoming& in = incoming_[static_cast<std::size_t>(peer)];
  Channel& channel = control_.channel(peer, rank_);
  const std::size_t here = channel.written.load(std::memory_order_acquire) - in.read;
  if (here < sizeof(Header)) return false;
  if (here >= kLeastNoted)
    sharing_cost_.note(control_.ring(peer, rank_) + in.read % control_.ring_bytes());
  Header header;
  take(peer, reinterpret_cast<std::byte*>(&header), sizeof(header), in.read, false);
  const auto found = std::find_if(receives_.begin(), receives_.end(), [&](const auto& receive) {
    return matches(*receive, peer, header.tag);
  });
  if (found == receives_.end()) {
    // Leave the message in the ring, unless an awaited message may be queued behind it.
    if (!wanted_elsewhere(peer)) return false;
    try {
      in.strays.push_back({header, std::vector<std::byte>(header.bytes), 0, nullptr});
    } catch (const std::bad_alloc&) {
      mismatch = str("rank ", name(rank_), " has no memory to put aside a message of ",
                     header.bytes, " bytes from rank ", name(peer));
      return false;
    }
    in.into_stray = true;
  } else {
    mismatch = check(header, peer, **found);
    if (!mismatch.empty()) return false;
    in.transfer = *found;
    in.transfer->source = peer;
    receives_.erase(found);
    ++claimed_;
  }
  in.read += sizeof(Header);
  // If the message has bytes, move_message() publishes the counter with the first of them. If none
  // has arrived yet, the ring holds only this header, so the sender has room for more.
  if (header.bytes == 0) publish(channel.read, channel.read_sleepers, in.read);
  return true;
}

// Takes the bytes of the current message that have arrived. Returns whether there were any or the
// message was completed.
bool Channels::move_message(int peer) {
  Incoming& in = incoming_[static_cast<std::size_t>(peer)];
  Channel& channel = control_.channel(peer, rank_);
  Stray* const stray = in.into_stray ? &in.strays.back() : nullptr;
  std::byte* const data = stray != nullptr ? stray->memory.data() : in.transfer->data;
  std::size_t& done = stray != nullptr ? stray->moved : in.transfer->moved;
  const std::size_t bytes = stray != nullptr ? stray->header.bytes : in.transfer->bytes;
  bool moved = false;
  while (done < bytes) {
    const std::size_t here = channel.written.load(std::memory_order_acquire) - in.read;
    const std::size_t piece = std::min({here, bytes - done, control_.ring_bytes() / kPiecesOfRing});
    if (piece == 0) return moved;
    in.read += take(peer, data + done, piece, in.read, bytes >= kStreamedBytes);
    done += piece;
    publish(channel.read, channel.read_sleepers, in.read);
    moved = true;
  }
  if (stray == nullptr) {
    --claimed_;
    finish(in.transfer);
    in.transfer = nullptr;
    return true;
  }
  in.into_stray = false;
  if (stray->claimed) {
    std::memcpy(stray->claimed->data, stray->memory.data(), stray->memory.size());
    --claimed_;
    finish(stray->claimed);
    in.strays.pop_back();
  }
  return true;
}

// Searches the strays for the message that `transfer` wants. Returns whether one was found.
bool Channels::take_stray(Transfer& transfer, const std::shared_ptr<Transfer>& shared,
                          std::string& mismatch) {
  for (int peer = 0; peer < size_; ++peer) {
    auto& strays = incoming_[static_cast<std::size_t>(peer)].strays;
    const auto found = std::find_if(strays.begin(), strays.end(), [&](const Stray& stray) {
      return !stray.claimed && matches(transfer, peer, stray.header.tag);
    });
    if (found == strays.end()) continue;
    mismatch = check(found->header, peer, transfer);
    if (!mismatch.empty()) return true;  // the caller aborts the group
    transfer.source = peer;
    if (!found->complete()) {
      found->claimed = shared;
      ++claimed_;
      return true;
    }
    std::copy(found->memory.begin(), found->memory.end(), transfer.data);
    finish(shared);
    strays.erase(found);
    return true;
  }
  return false;
}

std::string Channels::check(const Header& header, int source, const Transfer& transfer) const {
  const bool same_amount = header.bytes == transfer.bytes && header.type == transfer.call.type;
  if (same_amount && header.fingerprint == transfer.fingerprint) return "";
  if (same_amount) {
    return str("rank ", name(source), " and rank ", name(rank_),
               " exchange messages of collectives that are not the same");
  }
  const auto amount = [](std::uint64_t bytes, detail::DataType type) {
    return str(bytes / detail::element_size(type), " of ", detail::data_type_name(type));
  };
  return str("point-to-point mismatch: rank ", name(source), " sent ",
             amount(header.bytes, header.type), " to rank ", name(rank_), ", which receives ",
             amount(transfer.bytes, transfer.call.type));
}

void Channels::finish(const std::shared_ptr<Transfer>& transfer) {
  transfer->keep_alive = nullptr;
  transfer->done.store(true, std::memory_order_release);
}

std::size_t Channels::take(int peer, std::byte* data, std::size_t bytes, std::uint32_t read,
                           bool streamed) {
  const std::byte* const ring = control_.ring(peer, rank_);
  const std::size_t at = read % control_.ring_bytes();
  const std::size_t first = std::min(bytes, control_.ring_bytes() - at);
  copy(data, ring + at, first, streamed);
  copy(data + first, ring, bytes - first, streamed);
  return bytes;
}

}  // namespace lockstep::shm
