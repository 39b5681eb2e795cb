// A client of a store over TCP. LibTorch's client waits for an answer without a deadline, and looks
// up the name of the host that it has reached: this one does neither.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/comm/store/protocol.h>
#include <lockstep/core/clock.h>

namespace lockstep::tcp_store {

struct ConnectionOptions {
  std::string who = "this process";  ///< "rank 1": begins the messages
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  /// For the whole of connecting, and for each answer afterwards.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// How long the store's host may answer nothing, not even for a process that is stopped, until
  /// the store counts as gone (ETIMEDOUT). Zero: only `timeout` holds.
  std::chrono::milliseconds host_timeout{0};
  /// Called again and again while connecting.
  std::function<void()> meanwhile{};
};

/// While one exists, the calls that its thread makes to connections wait until `deadline` at the
/// longest, or two seconds longer for an answer that a living store gives at once. For a wait with
/// a deadline of its own that consists of calls to a store. They may be nested; the inner one
/// counts.
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

/// Safe to use from several threads; one query at a time, and the time for its answer begins when
/// the query before it has ended. TimeoutError when the store does not answer, std::system_error
/// when it has closed the connection; after either the connection cannot be used any more, and
/// every call throws the same. Neither can it after any other exception, such as std::bad_alloc:
/// calls throw std::system_error.
class Connection {
 public:
  /// Connects, tries again while nobody listens there, and asks for a first answer. TimeoutError at
  /// the deadline, CommError where something else than a store answers.
  explicit Connection(ConnectionOptions options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void set(const std::string& key, const std::string& value);
  /// The value afterwards: `desired`, or what the key had where that is not `expected`. An empty
  /// `expected` stands for a key that does not exist.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  std::int64_t add(const std::string& key, std::int64_t number);
  bool check(const std::vector<std::string>& keys);
  /// False when not all keys exist after `timeout`.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// The values of keys that exist.
  std::vector<std::string> get(const std::vector<std::string>& keys);
  std::int64_t count_keys();
  bool remove(const std::string& key);
  void append(const std::string& key, const std::string& value);

  const ConnectionOptions& options() const { return options_; }

 private:
  class Exchange;

  void connect();
  bool greet(const Deadline& deadline);
  std::chrono::milliseconds answer_time(std::chrono::milliseconds wait) const;
  std::string at() const;

  ConnectionOptions options_;
  std::mutex mutex_;  // guards what follows
  int fd_ = -1;
  std::string received_;          // bytes received from the socket
  std::size_t read_ = 0;          // how many bytes of received_ have been read
  std::function<void()> broken_;  // throws why, once the connection cannot be used
};

}  // namespace lockstep::tcp_store
