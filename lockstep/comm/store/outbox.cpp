#include <lockstep/comm/store/outbox.h>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace lockstep::tcp_store {
namespace {

constexpr std::size_t kPiecesAtOnce = 64;
// A value that takes no more memory than a reference to it is copied.
constexpr std::size_t kCopiedBytes = 64;
constexpr std::size_t kOwnBytes = 4096;  // a piece of own bytes grows up to this size

}  // namespace

void Outbox::add(std::string_view bytes) {
  if (pieces_.empty() || pieces_.back().value || pieces_.back().own.size() >= kOwnBytes) {
    pieces_.push_back({Share(*budget_, sizeof(Piece))});
  }
  Piece& last = pieces_.back();
  // A string doubles its capacity.
  last.share.resize(sizeof(Piece) + 2 * (last.own.size() + bytes.size()));
  last.own += bytes;
}

void Outbox::add(std::shared_ptr<const HeldText> value) {
  if (value->text().size() <= kCopiedBytes) return add(std::string_view(value->text()));
  pieces_.push_back({Share(*budget_, sizeof(Piece)), {}, std::move(value)});
}

int Outbox::send_to(int socket) {
  while (!pieces_.empty()) {
    std::array<iovec, kPiecesAtOnce> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    const std::size_t count = std::min(pieces_.size(), kPiecesAtOnce);
    for (std::size_t i = 0; i < count; ++i) {
      std::string_view bytes = pieces_[i].bytes();
      if (i == 0) bytes.remove_prefix(sent_);
      parts[i] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
    message.msg_iovlen = count;
    const ssize_t taken = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return errno;
    sent_ += static_cast<std::size_t>(taken);
    while (!pieces_.empty() && sent_ >= pieces_.front().bytes().size()) {
      sent_ -= pieces_.front().bytes().size();
      pieces_.pop_front();
    }
  }
  return 0;
}

}  // namespace lockstep::tcp_store
