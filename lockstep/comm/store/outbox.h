// The answers that a client has not taken yet.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include <lockstep/comm/store/budget.h>

namespace lockstep::tcp_store {

/// A queue of bytes for a socket. It refers to values instead of copying them, so that a client
/// that requests a large value again and again, without reading the answers, does not multiply it.
/// Sent bytes are not moved. Not thread-safe.
class Outbox {
 public:
  /// The bytes in the queue count towards `budget`, which must outlive this object.
  explicit Outbox(Budget& budget) : budget_(&budget) {}

  /// Throw OverBudget.
  void add(std::string_view bytes);
  void add(std::shared_ptr<const HeldText> value);

  bool empty() const { return pieces_.empty(); }
  void clear() { pieces_.clear(); }

  /// Sends as much as the socket takes without blocking. Returns 0, or the error of send().
  int send_to(int socket);

 private:
  struct Piece {
    Share share;
    std::string own{};
    std::shared_ptr<const HeldText> value{};  ///< if set, the bytes are the value's

    std::string_view bytes() const { return value ? std::string_view(value->text()) : own; }
  };

  Budget* budget_;
  std::deque<Piece> pieces_;
  std::size_t sent_ = 0;  // how much of the first piece
};

}  // namespace lockstep::tcp_store
