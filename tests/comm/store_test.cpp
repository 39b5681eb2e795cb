// The store of a rendezvous: its queries, and the deadlines of all calls to it.
#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/server.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <functional>
#include <latch>
#include <new>
#include <system_error>
#include <thread>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>

namespace lockstep::tcp_store {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConnectionOptions to(std::uint16_t port, milliseconds timeout = std::chrono::seconds(30)) {
  return {.who = "rank 1", .port = port, .timeout = timeout};
}

class Store : public ::testing::Test {
 protected:
  const int fd_ = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port_ = comm::bound_port(fd_);
  Server server_{fd_};
  Connection store_{to(port_)};
};

TEST(StoreServer, SaysWhyItCannotServe) {
  constexpr int kNotOpen = 1'000'000;
  EXPECT_EQ(testing_support::message_of<CommError>([] { const Server server(kNotOpen); }),
            "cannot serve a store: fcntl: Bad file descriptor");
}

TEST_F(Store, KeepsWhatIsSet) {
  store_.set("a", "1");
  store_.set("b", std::string(300'000, 'b'));
  store_.append("a", "2");
  EXPECT_THAT(store_.get({"a"}), ElementsAre("12"));
  EXPECT_EQ(store_.get({"b"})[0].size(), 300'000U);
  EXPECT_TRUE(store_.check({"a", "b"}));
  EXPECT_FALSE(store_.check({"a", "c"}));
  EXPECT_EQ(store_.count_keys(), 2);
  EXPECT_TRUE(store_.remove("a"));
  EXPECT_FALSE(store_.remove("a"));
  EXPECT_FALSE(store_.check({"a"}));
}

TEST_F(Store, ComparesBeforeItSets) {
  EXPECT_EQ(store_.compare_set("k", "", "first"), "first");
  EXPECT_EQ(store_.compare_set("k", "", "second"), "first");
  EXPECT_EQ(store_.compare_set("k", "first", "third"), "third");
  EXPECT_EQ(store_.compare_set("other", "expected", "x"), "expected");
  EXPECT_FALSE(store_.check({"other"}));
}

TEST_F(Store, Counts) {
  EXPECT_EQ(store_.add("n", 2), 2);
  EXPECT_EQ(store_.add("n", -5), -3);
  EXPECT_THAT(store_.get({"n"}), ElementsAre("-3"));
}

TEST_F(Store, WaitsForTheLastKey) {
  store_.set("here", "");
  std::thread waiter([port = port_] {
    EXPECT_TRUE(Connection(to(port)).wait({"here", "x", "y", "x"}, std::chrono::seconds(30)));
  });
  store_.set("x", "");
  store_.set("y", "");
  waiter.join();
}

TEST_F(Store, EndsAWaitAtItsDeadlineAndGoesOn) {
  Connection other(to(port_));
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_FALSE(store_.wait({"k"}, milliseconds(1)));
  }
  other.set("k", "v");
  EXPECT_TRUE(other.check({"k"}));  // ensures that the store has received it
  EXPECT_TRUE(store_.wait({"k"}, milliseconds(1)));
  EXPECT_THAT(store_.get({"k"}), ElementsAre("v"));
}

// The cancellation of a wait races repeatedly with the key that is waited for.
TEST_F(Store, SortsOutAnswersThatCrossACancelledWait) {
  std::thread writer([port = port_] {
    Connection store(to(port));
    for (int i = 0; i < 300; ++i) store.set(str("k", i), str(i));
  });
  for (int i = 0; i < 300; ++i) {
    while (!store_.wait({str("k", i)}, milliseconds(0))) {
    }
    EXPECT_THAT(store_.get({str("k", i)}), ElementsAre(str(i)));
  }
  writer.join();
}

TEST_F(Store, ServesManyAtOnce) {
  constexpr int kClients = 16;
  const auto errors = testing_support::run_threads(kClients, [&](int client) {
    Connection store(to(port_));
    for (int round = 0; round < 20; ++round) {
      store.set(str(round, '/', client), std::string(1000, 'x'));
      if (store.add(str("came", round), 1) == kClients) store.set(str("all", round), "");
      if (!store.wait({str("all", round)}, std::chrono::seconds(30))) throw Error("late");
      std::vector<std::string> keys;
      for (int each = 0; each < kClients; ++each) keys.push_back(str(round, '/', each));
      if (store.get(keys)[0].size() != 1000) throw Error("short");
    }
  });
  EXPECT_EQ(errors, testing_support::no_errors(kClients));
}

TEST_F(Store, WaitsAsLongAsTheInnermostLimitAllows) {
  const auto wait_seconds = [&](milliseconds timeout) {
    const auto start = Clock::now();
    EXPECT_FALSE(store_.wait({"k"}, timeout));
    return seconds_since(start);
  };
  const Deadline soon(milliseconds(0));
  const Deadline late(std::chrono::hours(1));
  {
    const AnswerLimit outer(soon);
    {
      const AnswerLimit inner(late);
      EXPECT_GE(wait_seconds(milliseconds(40)), 0.04);
    }
    EXPECT_LT(wait_seconds(std::chrono::hours(1)), 20);
  }
  EXPECT_GE(wait_seconds(milliseconds(40)), 0.04);
}

// A client that breaks the protocol is disconnected; the other clients are not affected.
TEST_F(Store, DropsStrangers) {
  const std::string set_without_magic = Message(Query::kSet).add_text("a").add_text("b").bytes();
  const std::string greeting = Message(Query::kValidate).add(kMagic).bytes();
  const std::string endless = Message(Query::kSet).add(~std::uint64_t{0}).bytes();
  const std::string missing = Message(Query::kGet).add_text("missing").bytes();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), set_without_magic,
        Message(Query::kValidate).add(std::uint32_t{7}).bytes(), greeting + endless,
        greeting + missing, greeting + std::string(1, '\x63'),
        greeting + Message(Query::kMeet).add_text("not 32 bytes").bytes(),
        greeting + Message(Query::kMultiGet).add_texts({"missing"}).bytes(),
        greeting + Message(Query::kWait).add(~std::uint64_t{0}).bytes(),
        Message(Query::kPing).add(kMagic).bytes(), Message(Query::kCountKeys).bytes(),
        Message(Query::kMeet).add_text(std::string(32, 'n')).bytes(),
        Message(Query::kProve).add_text("proof").bytes(),
        greeting + Message(Query::kProve).add_text("proof").bytes()}) {
    const int fd = comm::connect_to_listener("127.0.0.1", port_, std::chrono::seconds(30));
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
    pollfd polled{fd, POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, 30'000), 1);
    char byte = 0;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0) << bytes;
    close(fd);
  }
  EXPECT_EQ(store_.count_keys(), 0);
}

// A forked child has copies of the store's sockets, which stay open when the store closes its own.
TEST_F(Store, RestsAfterAClientLeftWhileAChildLives) {
  const int client = comm::connect_to_listener("127.0.0.1", port_, std::chrono::seconds(30));
  const Message ping = Message(Query::kValidate).add(kMagic).add(Query::kPing).add(kMagic);
  ASSERT_EQ(send(client, ping.bytes().data(), ping.bytes().size(), MSG_NOSIGNAL),
            std::ssize(ping.bytes()));
  // The descriptor is non-blocking, so MSG_WAITALL alone would not wait.
  pollfd polled{client, POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 30'000), 1);
  std::uint32_t answer = 0;
  ASSERT_EQ(recv(client, &answer, sizeof(answer), MSG_WAITALL), ssize_t{sizeof(answer)});
  const pid_t child = fork();
  if (child == 0) {
    sleep(60);
    _exit(0);
  }
  shutdown(client, SHUT_RDWR);
  close(client);
  EXPECT_EQ(store_.add("n", 1), 1);  // by now the store has noticed the disconnect
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(milliseconds(300));
  const double busy = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy, 0.15) << "the store's thread does not rest";
  EXPECT_EQ(store_.add("n", 1), 2);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(StoreConnection, SaysThatTheStoreHasGone) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  auto server = std::make_unique<Server>(fd);
  Connection store(to(comm::bound_port(fd)));
  server.reset();
  for (int turn = 0; turn < 2; ++turn) EXPECT_THROW(store.check({"k"}), std::system_error);
}

// Accepts connections and runs `serve` on each, until the end of the test.
class FakeStore {
 public:
  explicit FakeStore(std::function<void(int)> serve)
      : thread_([this, serve = std::move(serve)] {
          for (;;) {
            const int connection = accept(fd_, nullptr, nullptr);
            if (connection < 0) return;
            serve(connection);
          }
        }) {}
  ~FakeStore() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  std::uint16_t port() const { return port_; }

 private:
  const int fd_ = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port_ = comm::bound_port(fd_);
  std::thread thread_;
};

// Answers the greeting of a new connection as a store does.
bool answer_greeting(int connection) {
  char bytes[10];
  return recv(connection, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes) &&
         send(connection, bytes + 6, 4, MSG_NOSIGNAL) == 4;
}

template <class Error, class Call>
std::string text_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Simulates a rank 0 that is stopped before it serves: the kernel accepts connections for it.
TEST(StoreConnection, DoesNotWaitForEverForASilentListener) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  const auto start = Clock::now();
  EXPECT_THAT(
      text_of<TimeoutError>([&] { Connection(to(comm::bound_port(fd), milliseconds(300))); }),
      AllOf(HasSubstr("rank 1 waited 0.3 s for an answer of the store at 127.0.0.1:"),
            HasSubstr(str(comm::bound_port(fd), ": it is connected but silent"))));
  EXPECT_GE(seconds_since(start), 0.3);
  close(fd);
}

TEST(StoreConnection, DoesNotWaitForEverForAStoreThatGoesSilent) {
  FakeStore fake([](int connection) { answer_greeting(connection); });
  const std::function<void(Connection&)> calls[] = {
      [](Connection& store) { store.check({"k"}); },
      [](Connection& store) { store.get({"k"}); },
      [](Connection& store) { store.add("k", 1); },
      [](Connection& store) { store.compare_set("k", "", "v"); },
      [](Connection& store) { store.remove("k"); },
      [](Connection& store) { store.wait({"k"}, milliseconds(10)); },
  };
  for (const auto& call : calls) {
    Connection store(to(fake.port(), milliseconds(100)));
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_THAT(text_of<TimeoutError>([&] { call(store); }),
                  HasSubstr("rank 1 waited 0.1 s for an answer of the store"));
    }
  }
}

void receive(int connection, std::size_t size) {
  std::string bytes(size, '\0');
  recv(connection, bytes.data(), size, MSG_WAITALL);
}

template <class Value>
void answer(int connection, Value value) {
  send(connection, &value, sizeof(value), MSG_NOSIGNAL);
}

// Another thread's wait does not use up the time limit of this thread's query.
TEST(StoreConnection, CountsTheTimeForAnAnswerFromItsOwnQuery) {
  const std::size_t wait_size = Message(Query::kWait).add_texts({"k"}).bytes().size();
  const std::size_t check_size = Message(Query::kCheck).add_texts({"k"}).bytes().size();
  std::latch waiting(1);
  FakeStore fake([&](int connection) {
    answer_greeting(connection);
    receive(connection, wait_size);
    waiting.count_down();
    receive(connection, sizeof(Query::kCancelWait));
    answer(connection, Waited::kCancelled);
    receive(connection, check_size);
    answer(connection, Found::kAll);
  });
  Connection store(to(fake.port(), milliseconds(500)));
  std::thread waiter([&] { EXPECT_FALSE(store.wait({"k"}, milliseconds(1000))); });
  waiting.wait();
  EXPECT_NO_THROW(EXPECT_TRUE(store.check({"k"})));
  waiter.join();
}

// The kernel of a stopped process's host answers, but has no buffer space for more data.
TEST(StoreConnection, WaitsWhereTheStoreHasNoRoomWhileItsHostAnswers) {
  FakeStore fake([](int connection) {
    answer_greeting(connection);
    std::this_thread::sleep_for(milliseconds(1500));
    std::string bytes(1 << 20, '\0');
    while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
    }
    close(connection);
  });
  auto options = to(fake.port());
  options.host_timeout = milliseconds(300);
  Connection store(options);
  EXPECT_NO_THROW(store.set("k", std::string(std::size_t{64} << 20, 'x')));
}

TEST(StoreConnection, WaitsNoLongerThanItsLimit) {
  FakeStore silent([](int connection) { answer_greeting(connection); });
  const std::function<void(Connection&)> calls[] = {
      [](Connection& store) { store.check({"k"}); },
      [](Connection& store) { store.wait({"k"}, std::chrono::minutes(1)); },
  };
  for (const auto& call : calls) {
    Connection store(to(silent.port(), std::chrono::minutes(1)));
    const auto start = Clock::now();
    const Deadline deadline(milliseconds(200));
    const AnswerLimit limit(deadline);
    EXPECT_THAT(text_of<TimeoutError>([&] { call(store); }),
                HasSubstr("rank 1 waited 2 s for an answer of the store"));
    EXPECT_LT(seconds_since(start), 10);
  }
}

// The sanitizers' allocators abort a process that runs out of memory.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StoreConnection, CannotBeUsedAfterAnAnswerForWhichThereIsNoMemory) {
  FakeStore fake([](int connection) {
    answer_greeting(connection);
    receive(connection, Message(Query::kMultiGet).add_texts({"k"}).bytes().size());
    answer(connection, std::uint64_t{1} << 30);
  });
  const auto errors = testing_support::run_processes(1, [&](int) {
    Connection store(to(fake.port(), std::chrono::seconds(2)));
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * sysconf(_SC_PAGESIZE) + (std::size_t{1} << 28);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    if (text_of<std::bad_alloc>([&] { store.get({"k"}); }) == "no error") throw Error("it got it");
    throw Error(text_of<std::system_error>([&] { store.check({"k"}); }));
  });
  EXPECT_THAT(errors[0], ::testing::StartsWith("the store at 127.0.0.1:"));
}
#endif

// What a store never sends: the length of a text that no client could have set.
TEST(StoreConnection, RefusesATextThatIsTooLong) {
  for (const std::uint64_t length : {(std::uint64_t{1} << 30) + 1, ~std::uint64_t{0}}) {
    FakeStore fake([&](int connection) {
      answer_greeting(connection);
      receive(connection, Message(Query::kMultiGet).add_texts({"k"}).bytes().size());
      answer(connection, length);
    });
    Connection store(to(fake.port()));
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(text_of<std::system_error>([&] { store.get({"k"}); }),
                str("the store at 127.0.0.1:", fake.port(), ": Protocol error"));
    }
  }
}

// A process that is killed with unread data resets its connections.
TEST(StoreConnection, SaysThatTheStoreWasReset) {
  FakeStore fake([](int connection) {
    answer_greeting(connection);
    const linger at_once{1, 0};
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    receive(connection, Message(Query::kCheck).add_texts({"k"}).bytes().size());
    close(connection);
  });
  Connection store(to(fake.port()));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(text_of<std::system_error>([&] { store.check({"k"}); }),
              str("the store at 127.0.0.1:", fake.port(), ": Connection reset by peer"));
  }
}

// The child has a copy of the store, but not the thread that serves it. ThreadSanitizer does not
// expect a child to detach that thread.
#if !defined(__SANITIZE_THREAD__)
TEST(StoreServer, IsLeftToItsProcessByAForkedChild) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port = comm::bound_port(fd);
  auto server = std::make_unique<Server>(fd);
  Connection before(to(port));
  before.set("k", "v");
  EXPECT_THAT(before.get({"k"}), ElementsAre("v"));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    server.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child waited for a thread that it does not have";
  EXPECT_THAT(before.get({"k"}), ElementsAre("v"));
  EXPECT_THAT(Connection(to(port)).get({"k"}), ElementsAre("v"));
}
#endif

// A rank that waits for rank 0 does other things meanwhile, and may find out that it waits in vain.
TEST(StoreConnection, LooksAroundOnlyWhileItConnects) {
  const auto error_at = [](std::uint16_t port) {
    auto options = to(port);
    options.meanwhile = [] { throw CommError("enough"); };
    return text_of<CommError>([&] { Connection{options}; });
  };
  const int held = comm::hold_port("127.0.0.1");
  EXPECT_EQ(error_at(comm::bound_port(held)), "enough") << "nobody listens";
  close(held);
  FakeStore closing([](int connection) { close(connection); });
  EXPECT_EQ(error_at(closing.port()), "enough") << "each connection is closed";
  const int silent = comm::listen_on("127.0.0.1", 0);
  EXPECT_EQ(error_at(comm::bound_port(silent)), "enough") << "nothing is answered";
  close(silent);
  const int fd = comm::listen_on("127.0.0.1", 0);
  auto options = to(comm::bound_port(fd));
  const Server server(fd);
  options.meanwhile = [] {};
  EXPECT_FALSE(Connection(options).options().meanwhile);
}

TEST(StoreConnection, SaysHowLongItTriedToConnect) {
  const int held = comm::hold_port("127.0.0.1");
  const std::uint16_t port = comm::bound_port(held);
  EXPECT_THAT(text_of<TimeoutError>([&] { Connection(to(port, milliseconds(50))); }),
              ::testing::StartsWith(
                  str("rank 1 waited 0.05 s: nobody listens at 127.0.0.1:", port, " after 0.0")));
  close(held);
}

TEST(StoreConnection, SaysWhatListensInsteadOfAStore) {
  FakeStore banner([](int connection) {
    constexpr char kText[] = "SSH-2.0-OpenSSH_9.2";
    send(connection, kText, sizeof(kText), MSG_NOSIGNAL);
  });
  EXPECT_THAT(text_of<CommError>([&] { Connection{to(banner.port())}; }),
              AllOf(HasSubstr(str("rank 1: what listens at 127.0.0.1:", banner.port())),
                    HasSubstr(" is not a store: another program has the port")));
  FakeStore closing([](int connection) { close(connection); });
  EXPECT_THAT(
      text_of<TimeoutError>([&] { Connection(to(closing.port(), milliseconds(500))); }),
      AllOf(HasSubstr(str("rank 1 waited 0.5 s for the store at 127.0.0.1:", closing.port())),
            HasSubstr("closes each connection without an answer")));
}

// The store of a failed attempt ends, and the store of the next attempt takes its port.
TEST(StoreConnection, TriesAgainWhereAStoreEnds) {
  int turn = 0;
  FakeStore second_time([&](int connection) {
    if (turn++ == 0 || !answer_greeting(connection)) close(connection);
  });
  Connection store(to(second_time.port()));
}

}  // namespace
}  // namespace lockstep::tcp_store
