// A client of a store over TCP. LibTorch's client waits for an answer without a deadline and looks
// up the name of the host that it has reached; this one does neither.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/comm/store/proof.h>
#include <lockstep/comm/store/protocol.h>
#include <lockstep/core/clock.h>

namespace lockstep::tcp_store {

struct ConnectionOptions {
  std::string who = "this process";  ///< begins error messages: "rank 1"
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  /// Time limit for connecting as a whole, and for each answer afterwards.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// How long the store's host may stay silent before the store counts as gone (ETIMEDOUT). A
  /// host's kernel answers even for a stopped process. Zero: only `timeout` applies.
  std::chrono::milliseconds host_timeout{0};
  /// Called repeatedly while connecting.
  std::function<void()> meanwhile{};
  /// Whether rank 0 of this job serves the store, so that the two ends prove the job's secret to
  /// each other. Another program's store, such as torchrun's, does not know how.
  bool served_by_rank_0 = false;
  Mac mac{};  ///< the hash with the job's secret; empty without one
};

/// Limits this thread's waits on connections while it exists: a call waits until `deadline`, or up
/// to two seconds longer for an answer that a live store gives immediately. Used for a wait with
/// its own deadline that consists of several calls to a store. Limits may be nested; the innermost
/// one applies.
class AnswerLimit {
 public:
  /// `deadline` must outlive the limit.
  explicit AnswerLimit(const Deadline& deadline);
  ~AnswerLimit();
  AnswerLimit(const AnswerLimit&) = delete;
  AnswerLimit& operator=(const AnswerLimit&) = delete;

 private:
  const Deadline* const outer_;
};

/// Safe to use from several threads. Queries run one at a time, and the time limit for an answer
/// starts when the previous query has ended. Throws TimeoutError if the store does not answer and
/// std::system_error if it has closed the connection; afterwards the connection is unusable, and
/// every call throws the same error. After any other exception, such as std::bad_alloc, the
/// connection is also unusable, and calls throw std::system_error.
class Connection {
 public:
  /// Connects, retrying while no process listens there, and requests a first answer. Throws
  /// TimeoutError at the deadline, and CommError if the listener is not a store, or if only one of
  /// the two ends has a secret or they have different ones.
  explicit Connection(ConnectionOptions options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void set(const std::string& key, const std::string& value);
  /// Returns the value after the call: `desired`, or the key's value if it differs from `expected`.
  /// An empty `expected` stands for a key that does not exist.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  std::int64_t add(const std::string& key, std::int64_t number);
  bool check(const std::vector<std::string>& keys);
  /// Returns false if some keys still do not exist after `timeout`.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// Returns the values of existing keys.
  std::vector<std::string> get(const std::vector<std::string>& keys);
  std::int64_t count_keys();
  bool remove(const std::string& key);
  void append(const std::string& key, const std::string& value);

  const ConnectionOptions& options() const { return options_; }

 private:
  class Exchange;

  void connect();
  bool greet(const Deadline& deadline);
  void prove(Exchange& exchange);
  std::chrono::milliseconds answer_time(std::chrono::milliseconds wait) const;
  std::string at() const;

  ConnectionOptions options_;
  std::mutex mutex_;  // guards the members below
  int fd_ = -1;
  std::string received_;          // bytes received from the socket
  std::size_t read_ = 0;          // how many bytes of received_ have been read
  std::function<void()> broken_;  // once the connection is unusable, throws the reason
};

}  // namespace lockstep::tcp_store
