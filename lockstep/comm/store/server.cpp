#include <lockstep/comm/store/server.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include <lockstep/comm/store/protocol.h>
#include <lockstep/comm/store/reader.h>
#include <lockstep/comm/store/table.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>

namespace lockstep::tcp_store {
namespace {

constexpr std::size_t kServerChunk = 64 * 1024;
constexpr std::size_t kEventsAtOnce = 64;
// Pause when the process has run out of descriptors; clients wait in the listening socket's queue.
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{10};

int checked(int result, const char* what) {
  if (result < 0) throw CommError(str("cannot serve a store: ", what, ": ", errno_text(errno)));
  return result;
}

struct Client {
  Descriptor socket;
  std::string in{};        ///< received bytes of an incomplete query
  std::string out{};       ///< bytes to send once the client reads again
  bool valid = false;      ///< whether the magic number has arrived
  bool out_waits = false;  ///< waiting until the socket accepts more of `out`
};

}  // namespace

class Server::Loop {
 public:
  explicit Loop(int listen_fd)
      : listener_(listen_fd),
        events_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        bell_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
        table_([this](int client) { answer(client, Message().add(Waited::kAllExist)); }) {
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
      const int count = epoll_wait(events_.get(), events.data(), kEventsAtOnce, -1);
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == bell_.get()) return;
        if (fd == listener_.get()) {
          accept_all();
        } else {
          serve(fd, events[static_cast<std::size_t>(i)].events);
        }
      }
    }
  }

  void watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    checked(epoll_ctl(events_.get(), operation, fd, &event), "epoll_ctl");
  }

  void accept_all() {
    for (;;) {
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
        clients_.emplace(fd, Client{std::move(socket)});
        watch(EPOLL_CTL_ADD, fd, EPOLLIN);
      } catch (const std::exception&) {
        clients_.erase(fd);  // no memory for this client; destroying it closes the connection
      }
    }
  }

  // Disconnects a client that breaks the protocol or for which there is no memory.
  void serve(int fd, std::uint32_t events) {
    try {
      if ((events & EPOLLOUT) != 0) flush(clients_.at(fd));
      if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0 || receive(clients_.at(fd))) return;
    } catch (const std::exception&) {
    }
    table_.cancel(fd);
    // Closing is not enough: a forked child has a copy of the socket, which would keep it watched.
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
    clients_.erase(fd);
  }

  // Returns false if the client has disconnected.
  bool receive(Client& client) {
    std::array<char, kServerChunk> chunk;
    const ssize_t count = recv(client.socket.get(), chunk.data(), chunk.size(), 0);
    if (count == 0) return false;
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    client.in.append(chunk.data(), static_cast<std::size_t>(count));
    std::size_t done = 0;
    try {
      while (done < client.in.size()) {
        Reader reader(std::string_view(client.in).substr(done));
        handle(client, reader);
        done += reader.position();
      }
    } catch (const Incomplete&) {
    }
    client.in.erase(0, done);
    return true;
  }

  void handle(Client& client, Reader& reader) {
    const auto query = reader.read<Query>();
    const int fd = client.socket.get();
    if (!client.valid && query != Query::kValidate) throw Malformed();
    switch (query) {
      case Query::kValidate:
        if (reader.read<std::uint32_t>() != kMagic) throw Malformed();
        client.valid = true;
        return;
      case Query::kPing:
        return answer(fd, Message().add(reader.read<std::uint32_t>()));
      case Query::kWait:
        if (table_.wait(fd, reader.read_texts())) return;
        return answer(fd, Message().add(Waited::kAllExist));
      case Query::kCancelWait:
        table_.cancel(fd);
        return answer(fd, Message().add(Waited::kCancelled));
      default:
        return access(fd, query, reader);
    }
  }

  // Handles the queries that read and write keys.
  void access(int fd, Query query, Reader& reader) {
    switch (query) {
      case Query::kSet: {
        const std::string key = reader.read_text();
        return table_.set(key, reader.read_text());
      }
      case Query::kAppend: {
        const std::string key = reader.read_text();
        return table_.append(key, reader.read_text());
      }
      case Query::kMultiSet: {
        std::vector<std::string> pairs(2 * check_count(reader.read<std::uint64_t>()));
        for (std::string& text : pairs) text = reader.read_text();
        for (std::size_t i = 0; i < pairs.size(); i += 2) table_.set(pairs[i], pairs[i + 1]);
        return;
      }
      case Query::kCompareSet: {
        const std::string key = reader.read_text();
        const std::string expected = reader.read_text();
        return answer(fd,
                      Message().add_text(table_.compare_set(key, expected, reader.read_text())));
      }
      case Query::kAdd: {
        const std::string key = reader.read_text();
        const auto sum = table_.add(key, reader.read<std::int64_t>());
        if (!sum) throw Malformed();
        return answer(fd, Message().add(*sum));
      }
      case Query::kDelete:
        return answer(fd, Message().add(std::int64_t{table_.remove(reader.read_text())}));
      case Query::kCountKeys:
        return answer(fd, Message().add(static_cast<std::int64_t>(table_.size())));
      case Query::kCheck: {
        Found found = Found::kAll;
        for (const auto& key : reader.read_texts()) {
          if (table_.find(key) == nullptr) found = Found::kNotAll;
        }
        return answer(fd, Message().add(found));
      }
      case Query::kGet:
        return answer(fd, Message().add_text(existing(reader.read_text())));
      case Query::kMultiGet: {
        Message values;
        for (const auto& key : reader.read_texts()) values.add_text(existing(key));
        return answer(fd, values);
      }
      default:
        throw Malformed();
    }
  }

  static std::uint64_t check_count(std::uint64_t pairs) {
    constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 17;
    if (pairs > kMostPairs) throw Malformed();
    return pairs;
  }

  const std::string& existing(const std::string& key) const {
    const std::string* const value = table_.find(key);
    if (value == nullptr) throw Malformed();
    return *value;
  }

  void answer(int fd, const Message& message) {
    Client& client = clients_.at(fd);
    const bool was_empty = client.out.empty();
    client.out += message.bytes();
    if (was_empty) flush(client);
  }

  void flush(Client& client) {
    const int fd = client.socket.get();
    const bool was_waiting = client.out_waits;
    while (!client.out.empty()) {
      const ssize_t count = send(fd, client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (count > 0) {
        client.out.erase(0, static_cast<std::size_t>(count));
      } else if (errno != EINTR) {
        if (errno != EAGAIN) client.out.clear();  // disconnected; the next event reports it
        break;
      }
    }
    client.out_waits = !client.out.empty();
    if (client.out_waits == was_waiting) return;
    watch(EPOLL_CTL_MOD, fd, client.out_waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  const Descriptor listener_;
  const Descriptor events_;
  const Descriptor bell_;
  Table table_;
  std::unordered_map<int, Client> clients_;  // by descriptor
  const pid_t owner_ = getpid();
  std::thread thread_;
};

Server::Server(int listen_fd) : loop_(std::make_unique<Loop>(listen_fd)) {}

Server::~Server() = default;

}  // namespace lockstep::tcp_store
