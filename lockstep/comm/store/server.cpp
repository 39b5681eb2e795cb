#include <lockstep/comm/store/server.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include <lockstep/comm/store/budget.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/outbox.h>
#include <lockstep/comm/store/protocol.h>
#include <lockstep/comm/store/query_scanner.h>
#include <lockstep/comm/store/reader.h>
#include <lockstep/comm/store/table.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::tcp_store {
namespace {

constexpr std::size_t kServerChunk = 64 * 1024;
constexpr std::size_t kEventsAtOnce = 64;
// The longest query of a client, and of a connection that is not admitted yet.
constexpr std::size_t kLongestQuery = std::size_t{1} << 28;
constexpr std::size_t kLongestGreeting = 128;
// Pause when the process has run out of descriptors; clients wait in the listening socket's queue.
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{10};

int checked(int result, const char* what) {
  if (result < 0) throw CommError(str("cannot serve a store: ", what, ": ", errno_text(errno)));
  return result;
}

struct Client {
  Client(Descriptor connection, Budget& budget)
      : socket(std::move(connection)), held(budget, sizeof(Client)), out(budget) {}

  Descriptor socket;
  Share held;        ///< for this object and `in`
  std::string in{};  ///< received bytes that have not been handled
  QueryScanner scanner{kLongestGreeting};
  Outbox out;
  bool valid = false;           ///< whether the magic number has arrived
  bool admitted = false;        ///< whether the client may use the store
  bool out_waits = false;       ///< waiting until the socket accepts more of `out`
  std::string client_number{};  ///< from kMeet
  std::string store_number{};
  const Clock::time_point since = Clock::now();
};

}  // namespace

class Server::Loop {
 public:
  Loop(int listen_fd, ServerOptions options)
      : options_(std::move(options)),
        listener_(listen_fd),
        events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        bell_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
        budget_(options_.mac ? std::numeric_limits<std::size_t>::max() : options_.most_bytes),
        table_(budget_, [this](int client) { end_wait(client); }) {
    checked(fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK), "fcntl");
    watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
    watch(EPOLL_CTL_ADD, bell_.get(), EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    if (getpid() != owner_) {  // a forked child does not have the thread
      thread_.detach();
      return;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
    thread_.join();
  }

 private:
  void run() {
    std::array<epoll_event, kEventsAtOnce> events;
    for (;;) {
      const int count = epoll_wait(events_.get(), events.data(), kEventsAtOnce, time_to_next());
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == bell_.get()) return;
        if (fd == listener_.get()) {
          accept_all();
        } else if (clients_.contains(fd)) {
          serve(fd, events[static_cast<std::size_t>(i)].events);
        }
      }
      drop_silent_strangers();
    }
  }

  // Milliseconds until the oldest stranger's time is over; -1 without strangers.
  int time_to_next() const {
    if (strangers_.empty()) return -1;
    const auto left = clients_.at(strangers_.front()).since + options_.time_to_prove - Clock::now();
    return static_cast<int>(
        std::max<std::int64_t>(std::chrono::ceil<Milliseconds>(left).count(), 0));
  }

  void drop_silent_strangers() {
    const auto latest = Clock::now() - options_.time_to_prove;
    while (!strangers_.empty() && clients_.at(strangers_.front()).since <= latest) {
      drop(strangers_.front());
    }
  }

  void watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    checked(epoll_ctl(events_.get(), operation, fd, &event), "epoll_ctl");
  }

  // Whether the listening socket is watched. It is not while there are too many strangers.
  void listen_again(bool wanted) {
    if (listens_ == wanted) return;
    watch(EPOLL_CTL_MOD, listener_.get(), wanted ? std::uint32_t{EPOLLIN} : 0);
    listens_ = wanted;
  }

  void accept_all() {
    while (strangers_.size() < options_.most_strangers) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN) std::this_thread::sleep_for(kPauseWithoutDescriptors);
        return;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Descriptor socket(fd);
      try {
        clients_.try_emplace(fd, std::move(socket), budget_);
        strangers_.push_back(fd);
        watch(EPOLL_CTL_ADD, fd, EPOLLIN);
      } catch (const OverBudget&) {
        tell_of_budget(-1);  // the socket is closed
        drop(fd);
      } catch (const std::exception&) {
        drop(fd);  // there is no memory for this client
      }
    }
    listen_again(false);
  }

  void drop(int fd) {
    table_.cancel(fd);
    std::erase(strangers_, fd);
    // Closing is not enough: a forked child has a copy of the socket, which would keep it watched.
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
    clients_.erase(fd);
    listen_again(strangers_.size() < options_.most_strangers);
  }

  void admit(Client& client) {
    if (client.admitted) return;
    client.admitted = true;
    client.scanner.allow(kLongestQuery);
    std::erase(strangers_, client.socket.get());
    listen_again(strangers_.size() < options_.most_strangers);
  }

  // Disconnects a client that breaks the protocol or for which there is no memory.
  void serve(int fd, std::uint32_t events) {
    try {
      Client& client = clients_.at(fd);
      bool connected = true;
      if ((events & EPOLLOUT) != 0) flush(client);
      if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) connected = receive(client);
      handle_all(client);
      if (connected) return;
    } catch (const OverBudget&) {
      tell_of_budget(fd);
    } catch (const std::exception&) {
    }
    drop(fd);
  }

  // `fd` is the socket of the client; -1 if it is closed. Called by handlers of exceptions, from
  // which another one would end the process: a warning that fails is lost.
  void tell_of_budget(int fd) noexcept {
    if (std::exchange(has_told_of_budget_, true)) return;
    try {
      warn_of_budget(fd < 0 ? "" : comm::peer_address(fd));
    } catch (...) {
    }
  }

  void warn_of_budget(const std::string& address) {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    log_warning("a process", address.empty() ? "" : " at ", address,
                " was disconnected from the store of this job at port ",
                comm::bound_port(listener_.get()), ", which would hold more than ",
                options_.most_bytes / kMiB,
                " MiB; if it is a rank of this job, start all ranks with the same LOCKSTEP_SECRET, "
                "which lifts this limit; if not, let a firewall keep it away");
  }

  // Returns false if the client has disconnected.
  bool receive(Client& client) {
    std::array<char, kServerChunk> chunk;
    const std::size_t most = client.admitted ? chunk.size() : kLongestGreeting;
    const ssize_t count = recv(client.socket.get(), chunk.data(), most, 0);
    if (count == 0) return false;
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    const std::size_t size = client.in.size() + static_cast<std::size_t>(count);
    // A string that grows doubles its capacity.
    client.held.resize(sizeof(Client) + std::max(client.in.capacity(), 2 * size));
    client.in.append(chunk.data(), static_cast<std::size_t>(count));
    return true;
  }

  // Handles the queries that have arrived, up to the first one that the client does not take the
  // answer of: until then the store neither handles nor receives more.
  void handle_all(Client& client) {
    std::size_t done = 0;
    while (client.out.empty() && done < client.in.size()) {
      const std::string_view rest = std::string_view(client.in).substr(done);
      const auto length = client.scanner.scan(rest);
      if (!length) break;
      Reader reader(rest.substr(0, *length));
      handle(client, reader);
      done += *length;
    }
    if (done == 0) return;
    client.in.erase(0, done);
    if (client.in.capacity() > kServerChunk && client.in.size() <= kServerChunk) {
      client.in.shrink_to_fit();
    }
    client.held.resize(sizeof(Client) + client.in.capacity());
  }

  void handle(Client& client, Reader& reader) {
    const auto query = reader.read<Query>();
    if (!client.valid && query != Query::kValidate) throw Malformed();
    switch (query) {
      case Query::kValidate:
        if (reader.read<std::uint32_t>() != kMagic) throw Malformed();
        client.valid = true;
        if (!options_.mac) admit(client);
        return;
      case Query::kPing:
        return answer(client, Message().add(reader.read<std::uint32_t>()));
      case Query::kMeet:
        return meet(client, reader.read_text());
      case Query::kProve:
        return check_proof(client, reader.read_text());
      default:
        if (!client.admitted) throw Malformed();
        return access(client, query, reader);
    }
  }

  void meet(Client& client, std::string number) {
    if (number.size() != kNumberBytes) throw Malformed();
    client.client_number = std::move(number);
    client.store_number = options_.mac ? fresh_number() : "";
    answer(client, Message().add_text(client.store_number));
  }

  void check_proof(Client& client, const std::string& proof) {
    // Each number serves one attempt.
    const std::string store_number = std::exchange(client.store_number, "");
    if (store_number.empty()) throw Malformed();
    if (!equal_in_constant_time(proof,
                                client_proof(options_.mac, client.client_number, store_number))) {
      if (!std::exchange(has_warned_, true)) {
        log_warning("a process at ", comm::peer_address(client.socket.get()),
                    " with another LOCKSTEP_SECRET was refused by the store of this job; if it is "
                    "a rank of this job, give all ranks the same");
      }
      answer(client, Message().add_text(""));
      throw Malformed();
    }
    admit(client);
    answer(client,
           Message().add_text(store_proof(options_.mac, client.client_number, store_number)));
  }

  // Handles the queries that read and write keys, and wait for them.
  void access(Client& client, Query query, Reader& reader) {
    const int fd = client.socket.get();
    switch (query) {
      case Query::kWait:
        if (table_.wait(fd, reader.read_texts())) return;
        return answer(client, Message().add(Waited::kAllExist));
      case Query::kCancelWait:
        table_.cancel(fd);
        return answer(client, Message().add(Waited::kCancelled));
      case Query::kSet: {
        const std::string key = reader.read_text();
        return table_.set(key, reader.read_text());
      }
      case Query::kAppend: {
        const std::string key = reader.read_text();
        return table_.append(key, reader.read_text());
      }
      case Query::kMultiSet: {
        std::vector<std::string> pairs = reader.read_pairs();
        for (std::size_t i = 0; i < pairs.size(); i += 2) {
          table_.set(pairs[i], std::move(pairs[i + 1]));
        }
        return;
      }
      case Query::kCompareSet: {
        const std::string key = reader.read_text();
        const std::string expected = reader.read_text();
        return answer(client, {table_.compare_set(key, expected, reader.read_text())});
      }
      case Query::kAdd: {
        const std::string key = reader.read_text();
        const auto sum = table_.add(key, reader.read<std::int64_t>());
        if (!sum) throw Malformed();
        return answer(client, Message().add(*sum));
      }
      case Query::kDelete:
        return answer(client, Message().add(std::int64_t{table_.remove(reader.read_text())}));
      case Query::kCountKeys:
        return answer(client, Message().add(static_cast<std::int64_t>(table_.size())));
      case Query::kCheck: {
        Found found = Found::kAll;
        for (const auto& key : reader.read_texts()) {
          if (table_.find(key) == nullptr) found = Found::kNotAll;
        }
        return answer(client, Message().add(found));
      }
      case Query::kGet:
        return answer(client, {existing(reader.read_text())});
      case Query::kMultiGet: {
        std::vector<Table::Value> values;
        for (const auto& key : reader.read_texts()) values.push_back(existing(key));
        return answer(client, values);
      }
      default:
        throw Malformed();
    }
  }

  Table::Value existing(const std::string& key) const {
    Table::Value value = table_.find(key);
    if (value == nullptr) throw Malformed();
    return value;
  }

  // If the waiter cannot be told, only the waiter is disconnected, not the client that wrote the
  // key.
  void end_wait(int fd) {
    Client& client = clients_.at(fd);
    try {
      answer(client, Message().add(Waited::kAllExist));
    } catch (const std::exception& error) {
      if (dynamic_cast<const OverBudget*>(&error) != nullptr) tell_of_budget(fd);
      shutdown(fd, SHUT_RDWR);
    }
  }

  void answer(Client& client, const Message& message) {
    client.out.add(message.bytes());
    flush(client);
  }

  void answer(Client& client, const std::vector<Table::Value>& values) {
    for (const auto& value : values) {
      client.out.add(Message().add(static_cast<std::uint64_t>(value->text().size())).bytes());
      client.out.add(value);
    }
    flush(client);
  }

  // While a client does not take its answers, the store does not receive its queries.
  void flush(Client& client) {
    const int error = client.out.send_to(client.socket.get());
    if (error != 0 && error != EAGAIN)
      client.out.clear();  // disconnected; the next event reports it
    const bool waits = !client.out.empty();
    if (waits == client.out_waits) return;
    client.out_waits = waits;
    watch(EPOLL_CTL_MOD, client.socket.get(), waits ? EPOLLOUT : EPOLLIN);
  }

  const ServerOptions options_;
  const Descriptor listener_;
  const Descriptor events_;
  const Descriptor bell_;
  Budget budget_;
  Table table_;
  std::unordered_map<int, Client> clients_;  // by descriptor
  std::deque<int> strangers_;                // clients that are not admitted, the oldest first
  bool listens_ = true;
  bool has_warned_ = false;          // that a client has another secret
  bool has_told_of_budget_ = false;  // that a client was disconnected
  const pid_t owner_ = getpid();
  std::thread thread_;
};

Server::Server(int listen_fd, ServerOptions options)
    : loop_(std::make_unique<Loop>(listen_fd, std::move(options))) {}

Server::~Server() = default;

}  // namespace lockstep::tcp_store
