// Limits what a store holds in memory.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

namespace lockstep::tcp_store {

/// The store would hold more than its limit.
class OverBudget : public std::exception {};

/// Counts the bytes that a store holds. Not thread-safe.
class Budget {
 public:
  explicit Budget(std::size_t most) : most_(most) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  std::size_t held() const { return held_; }

 private:
  friend class Share;

  const std::size_t most_;
  std::size_t held_ = 0;
};

/// A part of a budget, which it gives back when it is destroyed. The budget must outlive it.
class Share {
 public:
  /// Throws OverBudget if less than `bytes` are left.
  explicit Share(Budget& budget, std::size_t bytes = 0) : budget_(&budget) { resize(bytes); }
  ~Share() { budget_->held_ -= bytes_; }
  Share(Share&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  Share& operator=(Share&&) = delete;

  /// Throws OverBudget, and changes nothing, if less than the difference is left.
  void resize(std::size_t bytes) {
    if (bytes > bytes_ && bytes - bytes_ > budget_->most_ - budget_->held_) throw OverBudget();
    budget_->held_ += bytes - bytes_;
    bytes_ = bytes;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Budget* budget_;
  std::size_t bytes_ = 0;
};

/// A text that counts towards a budget as long as anything refers to it.
class HeldText {
 public:
  HeldText(Budget& budget, std::string text)
      : share_(budget, text.capacity() + sizeof(HeldText)), text_(std::move(text)) {}

  const std::string& text() const { return text_; }
  void append(const std::string& more) {
    share_.resize(2 * (text_.size() + more.size()) + sizeof(HeldText));  // what append() may take
    text_ += more;
    share_.resize(text_.capacity() + sizeof(HeldText));
  }

 private:
  Share share_;
  std::string text_;
};

}  // namespace lockstep::tcp_store
