#include <lockstep/comm/store/connection.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/error.h>

namespace lockstep::tcp_store {
namespace {

constexpr std::size_t kChunk = 64 * 1024;
constexpr Milliseconds kRetryPause{20};
constexpr Milliseconds kLookInterval{500};  // between calls of options.meanwhile
constexpr std::uint64_t kLongestText = std::uint64_t{1} << 30;
constexpr std::uint64_t kLongestProof = 64;
constexpr std::uint32_t kNonce = 0x4c6f636b;
constexpr Milliseconds kLongestWait = std::chrono::hours(24 * 365);
constexpr Milliseconds kLeastAnswerTime{2000};  // under an AnswerLimit

// The deadline of this thread's AnswerLimit; null without one.
thread_local const Deadline* answer_deadline = nullptr;

Milliseconds time_under_limit() {
  if (answer_deadline == nullptr) return Milliseconds::max();
  return std::chrono::ceil<Milliseconds>(answer_deadline->remaining());
}

[[noreturn]] void throw_closed(int error, const std::string& at) {
  throw std::system_error(error == 0 ? ECONNRESET : error, std::generic_category(),
                          "the store at " + at);
}

}  // namespace

AnswerLimit::AnswerLimit(const Deadline& deadline)
    : outer_(std::exchange(answer_deadline, &deadline)) {}

AnswerLimit::~AnswerLimit() { answer_deadline = outer_; }

// One query and its answer, with a deadline. Locks the connection, and leaves it broken if an
// exception interrupts the exchange.
class Connection::Exchange {
 public:
  /// The answer may take `wait` longer than other answers.
  explicit Exchange(Connection& connection, Milliseconds wait = Milliseconds(0))
      : connection_(connection),
        lock_(connection.mutex_),
        answer_time_(connection.answer_time(wait)),
        deadline_(wait + answer_time_) {
    if (connection_.broken_) connection_.broken_();
  }
  /// Used while connecting, which has its own deadline.
  Exchange(Connection& connection, const Deadline& deadline)
      : connection_(connection),
        lock_(connection.mutex_),
        answer_time_(connection.options_.timeout),
        deadline_(deadline) {}

  ~Exchange() {
    if (std::uncaught_exceptions() == exceptions_before_ || connection_.broken_) return;
    // A part of the answer may still arrive and would be taken for the next answer.
    connection_.broken_ = [&connection = connection_] { throw_closed(EPROTO, connection.at()); };
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(const Message& message) {
    const std::string& bytes = message.bytes();
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(connection_.fd_, bytes.data() + sent, bytes.size() - sent,
                                   MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) {
        sent += static_cast<std::size_t>(count);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        // The store has no buffer space for more data, for example because its process is stopped.
        // Its host is alive and answers.
        comm::limit_unacknowledged(connection_.fd_, Milliseconds(0));
        await(POLLOUT);
        comm::limit_unacknowledged(connection_.fd_, connection_.options_.host_timeout);
      } else if (errno != EINTR) {
        lose(errno);
      }
    }
  }

  template <class Value>
  Value receive() {
    Value value;
    receive(&value, sizeof(value));
    return value;
  }

  std::string receive_text(std::uint64_t longest = kLongestText) {
    const auto size = receive<std::uint64_t>();
    if (size > longest) lose(EPROTO);
    std::string text(size, '\0');
    receive(text.data(), text.size());
    return text;
  }

  /// Whether the first byte of an answer arrives before `limit`, which may be earlier than the
  /// deadline.
  bool has_answer_before(const Deadline& limit) {
    while (connection_.read_ == connection_.received_.size()) {
      if (!is_ready(POLLIN, limit)) return false;
      fill();
    }
    return true;
  }

 private:
  void receive(void* data, std::size_t size) {
    auto* to = static_cast<char*>(data);
    while (size > 0) {
      std::string& buffer = connection_.received_;
      const std::size_t count = std::min(size, buffer.size() - connection_.read_);
      std::copy_n(buffer.data() + connection_.read_, count, to);
      connection_.read_ += count;
      to += count;
      size -= count;
      if (size == 0) return;
      await(POLLIN);
      fill();
    }
  }

  // Call only after everything received has been read.
  void fill() {
    std::string& buffer = connection_.received_;
    buffer.resize(kChunk);
    connection_.read_ = 0;
    const ssize_t count = recv(connection_.fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    const int error = errno;
    buffer.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) lose(0);
    if (count < 0 && error != EINTR && error != EAGAIN && error != EWOULDBLOCK) lose(error);
  }

  void await(short events) {
    if (is_ready(events, deadline_)) return;
    give_up(
        [text = str(connection_.options_.who, " waited ",
                    static_cast<double>(answer_time_.count()) / 1e3,
                    " s for an answer of the store at ", connection_.at(),
                    ": it is connected but silent; is its process stopped, its host out of "
                    "reach, or does another program listen there? (MASTER_ADDR, MASTER_PORT)")] {
          throw TimeoutError(text);
        });
  }

  bool is_ready(short events, const Deadline& limit) {
    for (;;) {
      const auto left = std::chrono::ceil<Milliseconds>(limit.remaining());
      pollfd polled{connection_.fd_, events, 0};
      const int count =
          poll(&polled, 1, static_cast<int>(std::min<Milliseconds>(left, kLookInterval).count()));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) lose(errno);
      if (limit.expired()) return false;
      if (connection_.options_.meanwhile) connection_.options_.meanwhile();
    }
  }

  [[noreturn]] void lose(int error) {
    give_up([error, at = connection_.at()] { throw_closed(error, at); });
  }

  [[noreturn]] void give_up(std::function<void()> thrower) {
    connection_.broken_ = std::move(thrower);
    connection_.broken_();
    std::terminate();  // unreachable: the call above throws
  }

  Connection& connection_;
  const std::scoped_lock<std::mutex> lock_;
  const Milliseconds answer_time_;  // for error messages
  const Deadline deadline_;         // begins when the lock is held
  const int exceptions_before_ = std::uncaught_exceptions();
};

Connection::Connection(ConnectionOptions options) : options_(std::move(options)) {
  try {
    connect();
  } catch (...) {
    if (fd_ >= 0) close(fd_);
    throw;
  }
  options_.meanwhile = {};
}

Connection::~Connection() { close(fd_); }

std::string Connection::at() const { return comm::host_and_port(options_.host, options_.port); }

// The time limit of an answer that the store does not begin to send before `wait`.
Milliseconds Connection::answer_time(Milliseconds wait) const {
  const Milliseconds time = std::min(options_.timeout, kLongestWait);
  return std::min(time, std::max(time_under_limit() - wait, kLeastAnswerTime));
}

// Retries if the listener closes the connection: it may be another program that is about to exit,
// after which the store takes over the port.
void Connection::connect() {
  const Deadline deadline(options_.timeout);
  const std::string waited =
      str(options_.who, " waited ", static_cast<double>(options_.timeout.count()) / 1e3, " s");
  for (bool was_closed = false; !deadline.expired() || !was_closed;) {
    try {
      fd_ = comm::connect_to_listener(options_.host, options_.port,
                                      std::chrono::ceil<Milliseconds>(deadline.remaining()),
                                      options_.meanwhile);
    } catch (const TimeoutError& error) {
      if (was_closed) break;
      throw TimeoutError(str(waited, ": ", error.what()));
    }
    comm::give_up_silent_host(fd_, options_.host_timeout);
    if (greet(deadline)) return;
    was_closed = true;
    close(std::exchange(fd_, -1));
    if (options_.meanwhile) options_.meanwhile();
    std::this_thread::sleep_for(kRetryPause);
  }
  throw TimeoutError(str(waited, " for the store at ", at(),
                         ": whoever listens there closes each connection without an answer; "
                         "choose another port (MASTER_PORT)"));
}

// Returns false if the connection was closed.
bool Connection::greet(const Deadline& deadline) {
  broken_ = {};
  received_.clear();
  read_ = 0;
  try {
    Exchange exchange(*this, deadline);
    exchange.send(Message(Query::kValidate).add(kMagic).add(Query::kPing).add(kNonce));
    if (exchange.receive<std::uint32_t>() == kNonce) {
      if (options_.served_by_rank_0) prove(exchange);
      return true;
    }
  } catch (const std::system_error&) {
    return false;
  }
  throw CommError(str(options_.who, ": what listens at ", at(),
                      " is not a store: another program has the port; choose another one "
                      "(MASTER_PORT)"));
}

// The client shows its proof first: the store must not compute anything for a process that does not
// know the secret.
void Connection::prove(Exchange& exchange) {
  const Mac& mac = options_.mac;
  const std::string own_number = fresh_number();
  exchange.send(Message(Query::kMeet).add_text(own_number));
  const std::string number = exchange.receive_text(kNumberBytes);
  if (number.empty() != !mac) {
    throw CommError(str(options_.who, " was started ", mac ? "with" : "without",
                        " LOCKSTEP_SECRET, rank 0, which serves the store at ", at(), ", ",
                        mac ? "without" : "with", "; give all ranks the same"));
  }
  if (!mac) return;
  exchange.send(Message(Query::kProve).add_text(client_proof(mac, own_number, number)));
  const std::string proof = exchange.receive_text(kLongestProof);
  if (equal_in_constant_time(proof, store_proof(mac, own_number, number))) return;
  throw CommError(str(options_.who, " and rank 0, which serves the store at ", at(),
                      ", have different secrets (LOCKSTEP_SECRET); give all ranks the same"));
}

void Connection::set(const std::string& key, const std::string& value) {
  Exchange(*this).send(Message(Query::kSet).add_text(key).add_text(value));
}

std::string Connection::compare_set(const std::string& key, const std::string& expected,
                                    const std::string& desired) {
  Exchange exchange(*this);
  exchange.send(Message(Query::kCompareSet).add_text(key).add_text(expected).add_text(desired));
  return exchange.receive_text();
}

std::int64_t Connection::add(const std::string& key, std::int64_t number) {
  Exchange exchange(*this);
  exchange.send(Message(Query::kAdd).add_text(key).add(number));
  return exchange.receive<std::int64_t>();
}

bool Connection::check(const std::vector<std::string>& keys) {
  Exchange exchange(*this);
  exchange.send(Message(Query::kCheck).add_texts(keys));
  return exchange.receive<Found>() == Found::kAll;
}

bool Connection::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  // A live store immediately answers the query that cancels the wait.
  timeout = std::min({timeout, kLongestWait, time_under_limit()});
  Exchange exchange(*this, timeout);
  exchange.send(Message(Query::kWait).add_texts(keys));
  if (exchange.has_answer_before(Deadline(timeout))) {
    return exchange.receive<Waited>() == Waited::kAllExist;
  }
  exchange.send(Message(Query::kCancelWait));
  bool all_exist = false;
  while (exchange.receive<Waited>() != Waited::kCancelled) all_exist = true;
  return all_exist;
}

std::vector<std::string> Connection::get(const std::vector<std::string>& keys) {
  Exchange exchange(*this);
  exchange.send(Message(Query::kMultiGet).add_texts(keys));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(exchange.receive_text());
  return values;
}

std::int64_t Connection::count_keys() {
  Exchange exchange(*this);
  exchange.send(Message(Query::kCountKeys));
  return exchange.receive<std::int64_t>();
}

bool Connection::remove(const std::string& key) {
  Exchange exchange(*this);
  exchange.send(Message(Query::kDelete).add_text(key));
  return exchange.receive<std::int64_t>() > 0;
}

void Connection::append(const std::string& key, const std::string& value) {
  Exchange(*this).send(Message(Query::kAppend).add_text(key).add_text(value));
}

}  // namespace lockstep::tcp_store
