// What a process that does not know the secret of a job can make its store do, hold and reveal.
#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/server.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/query_scanner.h>
#include <lockstep/comm/store/reader.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <tests/comm/served_store.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>

namespace lockstep::tcp_store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::message_of;

// A connection on which a test writes what it likes.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port)
      : socket_(comm::connect_to_listener("127.0.0.1", port, seconds(30))) {}

  // Returns false if the store has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {
        if (!is_ready(POLLOUT)) return false;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }
  bool send(const Message& message) { return send(message.bytes()); }
  void greet() { send(Message(Query::kValidate).add(kMagic)); }

  // Exactly `size` bytes; fewer if the store closes the connection.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size && is_ready(POLLIN)) {
      const ssize_t count = recv(socket_.get(), bytes.data() + got, size - got, 0);
      if (count > 0) got += static_cast<std::size_t>(count);
      if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) break;
    }
    bytes.resize(got);
    return bytes;
  }
  std::string receive_text() {
    std::uint64_t size = 0;
    const std::string bytes = receive(sizeof(size));
    if (bytes.size() < sizeof(size)) return "closed";
    std::memcpy(&size, bytes.data(), sizeof(size));
    return receive(size);
  }
  bool is_ready(short events) {
    pollfd polled{socket_.get(), events, 0};
    return poll(&polled, 1, 30'000) == 1;
  }
  bool is_closed_by_store() { return receive(1).empty(); }
  int fd() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

// Sanitizers need more memory and time.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// 600 bytes of requests for a value of 16 MiB, whose answers the client does not read.
TEST(StoreLimits, AnswersThatNobodyReadsShareOneValue) {
  ServedStore store;
  Connection writer(store.options());
  writer.set("v", std::string(std::size_t{16} << 20, 'x'));
  EXPECT_TRUE(writer.check({"v"}));
  const std::size_t before = resident_bytes();
  std::vector<RawClient> readers;
  for (const auto& query :
       {Message(Query::kMultiGet).add_texts(std::vector<std::string>(64, "v")).bytes(), [] {
          std::string gets;
          for (int i = 0; i < 60; ++i) gets += Message(Query::kGet).add_text("v").bytes();
          return gets;
        }()}) {
    RawClient& reader = readers.emplace_back(store.port);
    reader.greet();
    ASSERT_TRUE(reader.send(query));
    EXPECT_TRUE(reader.is_ready(POLLIN));
  }
  EXPECT_TRUE(writer.check({"v"}));
  EXPECT_LT(resident_bytes(), before + (std::size_t{48} << 20));
  // The answers are right, and a value that was replaced meanwhile is still sent.
  writer.set("v", "another");
  EXPECT_TRUE(writer.check({"v"}));
  for (RawClient& reader : readers) {
    EXPECT_EQ(reader.receive_text(), std::string(std::size_t{16} << 20, 'x'));
  }
}
// The time for a query grows with its length, not with the number of pieces in which it arrives.
TEST(StoreTiming, QueriesInManyPiecesCostNoMoreThanWholeOnes) {
  ServedStore store;
  Connection other(store.options());
  const std::vector<std::string> keys(100'000, "a key of more than a few bytes");
  const std::string query = Message(Query::kCheck).add_texts(keys).bytes();
  RawClient client(store.port);
  client.greet();
  const std::clock_t before = std::clock();
  for (std::size_t place = 0; place < query.size(); place += 4096) {
    ASSERT_TRUE(client.send(std::string_view(query).substr(place, 4096)));
    other.check({"k"});  // by now the store has received the piece
  }
  EXPECT_EQ(client.receive(1), std::string(1, static_cast<char>(Found::kNotAll)));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 2);
}

// The socket takes a long answer in many pieces.
TEST(StoreTiming, AnswersInManyPiecesCostNoMoreThanWholeOnes) {
  constexpr std::size_t kValueBytes = std::size_t{16} << 20;
  constexpr int kTimes = 32;
  ServedStore store;
  Connection writer(store.options());
  writer.set("v", std::string(kValueBytes, 'x'));
  ASSERT_TRUE(writer.check({"v"}));
  RawClient reader(store.port);
  reader.greet();
  const std::clock_t before = std::clock();
  ASSERT_TRUE(
      reader.send(Message(Query::kMultiGet).add_texts(std::vector<std::string>(kTimes, "v"))));
  for (std::size_t left = kTimes * (sizeof(std::uint64_t) + kValueBytes); left > 0;) {
    const std::size_t count = reader.receive(std::min<std::size_t>(left, 1 << 20)).size();
    ASSERT_GT(count, 0U);
    left -= count;
  }
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 2);
}
#endif

// Whatever a client without a secret makes the store hold counts towards one limit.
TEST(StoreLimits, HoldNoMoreThanTheirBudget) {
  const std::string kilobyte(1024, 'x');
  const auto key = [&](int number) { return str(number, '/', kilobyte); };
  const std::pair<const char*, std::function<Message(int)>> cases[] = {
      {"values", [&](int i) { return Message(Query::kSet).add_text(str(i)).add_text(kilobyte); }},
      {"keys", [&](int i) { return Message(Query::kSet).add_text(key(i)).add_text(""); }},
      {"counters",
       [&](int i) { return Message(Query::kAdd).add_text(key(i)).add(std::int64_t{1}); }},
      {"small keys", [&](int i) { return Message(Query::kSet).add_text(str(i)).add_text(""); }},
      {"appended text",
       [&](int) { return Message(Query::kAppend).add_text("k").add_text(kilobyte); }},
      {"pairs",
       [&](int i) {
         return Message(Query::kMultiSet).add(std::uint64_t{1}).add_text(key(i)).add_text(kilobyte);
       }},
      {"values that are compared",
       [&](int i) {
         return Message(Query::kCompareSet).add_text(str(i)).add_text("").add_text(kilobyte);
       }},
      {"waits",
       [&](int) {
         std::vector<std::string> keys;
         for (int i = 0; i < 4000; ++i) keys.push_back(str(i));
         return Message(Query::kWait).add_texts(keys);
       }},
      {"a query that does not end",
       [&](int i) {
         return i == 0 ? Message(Query::kSet).add_text("k").add(std::uint64_t{1} << 25)
                       : Message().add_text(kilobyte);
       }},
  };
  for (const auto& [what, query] : cases) {
    SCOPED_TRACE(what);
    ServedStore store({.most_bytes = std::size_t{1} << 20});
    RawClient client(store.port);
    client.greet();
    std::size_t sent = 0;
    std::thread reader([&] {  // takes the answers, until the store closes the connection
      char bytes[4096];
      pollfd polled{client.fd(), POLLIN, 0};
      while (poll(&polled, 1, 30'000) == 1 && recv(client.fd(), bytes, sizeof(bytes), 0) > 0) {
      }
    });
    for (int i = 0; sent < (std::size_t{16} << 20); ++i) {
      const Message message = query(i);
      if (!client.send(message)) break;
      sent += message.bytes().size();
    }
    EXPECT_LT(sent, std::size_t{16} << 20) << "the store took everything";
    shutdown(client.fd(), SHUT_RDWR);
    reader.join();
  }
}

TEST(StoreLimits, TellsOnceWhichClientWasDisconnectedAndWhatToDo) {
  ServedStore store({.most_bytes = std::size_t{1} << 20});
  const testing_support::CapturedLog log;
  for (int client_number = 0; client_number < 2; ++client_number) {
    RawClient client(store.port);
    client.greet();
    client.send(
        Message(Query::kSet).add_text("k").add_text(std::string(std::size_t{3} << 20, 'x')));
    EXPECT_TRUE(client.is_closed_by_store());
  }
  EXPECT_THAT(
      log.lines(),
      ::testing::ElementsAre(
          AllOf(HasSubstr(str("a process at 127.0.0.1 was disconnected from the store of this job "
                              "at port ",
                              store.port, ", which would hold more than 1 MiB")),
                HasSubstr("start all ranks with the same LOCKSTEP_SECRET"))));
}

// A warning that cannot be written, as for want of memory, must not end the thread of the store.
TEST(StoreLimits, OutliveAWarningThatFails) {
  ServedStore store({.most_bytes = std::size_t{1} << 20});
  set_log_sink([](LogLevel, const std::string&) { throw std::bad_alloc(); });
  RawClient client(store.port);
  client.greet();
  client.send(Message(Query::kSet).add_text("k").add_text(std::string(std::size_t{3} << 20, 'x')));
  EXPECT_TRUE(client.is_closed_by_store());
  set_log_sink(nullptr);
  Connection other(store.options());
  other.set("k", "small");
  EXPECT_EQ(other.get({"k"})[0], "small");
}

// What a client has made the store hold for the time of its connection ends with it.
TEST(StoreLimits, AClientThatLeavesGivesItsShareBack) {
  ServedStore store({.most_bytes = std::size_t{1} << 20});
  Connection other(store.options());
  std::vector<std::string> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back(str(i));
  for (int round = 0; round < 20; ++round) {
    RawClient client(store.port);
    client.greet();
    ASSERT_TRUE(client.send(Message(Query::kWait).add_texts(keys)));
    ASSERT_TRUE(client.send(Message(Query::kPing).add(kMagic)));
    ASSERT_EQ(client.receive(4).size(), 4U) << "round " << round;
  }
  for (int round = 0; round < 20; ++round) {
    other.set("k", std::string(200'000, 'x'));
    EXPECT_EQ(other.get({"k"})[0].size(), 200'000U);
    EXPECT_TRUE(other.remove("k"));
  }
}

TEST(QueryScanner, FindsTheEndInAnyPieces) {
  const std::string queries[] = {
      Message(Query::kValidate).add(kMagic).bytes(),
      Message(Query::kPing).add(kMagic).bytes(),
      Message(Query::kSet).add_text("key").add_text("").bytes(),
      Message(Query::kAppend).add_text("").add_text("value").bytes(),
      Message(Query::kCompareSet).add_text("k").add_text("").add_text("v").bytes(),
      Message(Query::kGet).add_text("key").bytes(),
      Message(Query::kDelete).add_text("").bytes(),
      Message(Query::kAdd).add_text("key").add(std::int64_t{7}).bytes(),
      Message(Query::kCheck).add_texts({}).bytes(),
      Message(Query::kWait).add_texts({"a", "", "ccc"}).bytes(),
      Message(Query::kMultiGet).add_texts({"a"}).bytes(),
      Message(Query::kMultiSet)
          .add(std::uint64_t{2})
          .add_text("a")
          .add_text("b")
          .add_text("")
          .add_text("d")
          .bytes(),
      Message(Query::kCountKeys).bytes(),
      Message(Query::kCancelWait).bytes(),
      Message(Query::kMeet).add_text("number").bytes(),
      Message(Query::kProve).add_text("proof").bytes()};
  for (const std::string& query : queries) {
    SCOPED_TRACE(static_cast<int>(query[0]));
    const std::string more = query + "more";
    QueryScanner scanner(query.size());
    for (int round = 0; round < 2; ++round) {  // the scanner begins again
      for (std::size_t size = 0; size < query.size(); ++size) {
        ASSERT_EQ(scanner.scan(std::string_view(query).substr(0, size)), std::nullopt) << size;
      }
      EXPECT_EQ(scanner.scan(more), query.size());
    }
    EXPECT_EQ(scanner.scan(query), query.size());
    if (query.size() > 1) {
      QueryScanner narrow(query.size() - 1);
      EXPECT_THROW(narrow.scan(query), Malformed);
    }
  }
  for (const int number : {14, 99, 102, 255}) {
    EXPECT_THROW(QueryScanner(100).scan(std::string(1, static_cast<char>(number))), Malformed);
  }
}

// A scanner that looked at all fields again whenever a piece arrives would need a time that grows
// with the square of the query's length. Here the fields are no longer there when the last byte
// arrives.
TEST(QueryScanner, LooksAtEachFieldOnce) {
  const std::string queries[] = {
      Message(Query::kSet).add_text("key").add_text("value").bytes(),
      Message(Query::kCompareSet).add_text("k").add_text("").add_text("v").bytes(),
      Message(Query::kAdd).add_text("key").add(std::int64_t{7}).bytes(),
      Message(Query::kWait).add_texts({"a", "", "ccc"}).bytes(),
      Message(Query::kMultiSet).add(std::uint64_t{1}).add_text("a").add_text("b").bytes()};
  for (const std::string& query : queries) {
    SCOPED_TRACE(static_cast<int>(query[0]));
    QueryScanner scanner(query.size());
    EXPECT_EQ(scanner.scan(std::string_view(query).substr(0, query.size() - 1)), std::nullopt);
    EXPECT_EQ(scanner.scan(std::string(query.size(), '\xff')), query.size());
    EXPECT_EQ(scanner.scan(query), query.size()) << "the next query";
  }
}

TEST(QueryScanner, TakesNoLongerTextAndNoMoreTextsThanAReader) {
  constexpr std::size_t kAny = ~std::size_t{0} >> 1;
  const auto scan = [](Message message) { return QueryScanner(kAny).scan(message.bytes()); };
  const auto check = [&](Message message, std::uint64_t most) {
    const auto with = [&](std::uint64_t length) { return Message(message).add(length); };
    EXPECT_EQ(scan(with(most)), std::nullopt) << "more bytes follow";
    for (const std::uint64_t length : {most + 1, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      EXPECT_THROW(scan(with(length)), Malformed) << length;
    }
  };
  for (const Query query : {Query::kSet, Query::kCompareSet, Query::kGet, Query::kAdd,
                            Query::kDelete, Query::kAppend, Query::kMeet, Query::kProve}) {
    SCOPED_TRACE(static_cast<int>(query));
    check(Message(query), Reader::kLongestText);
  }
  for (const Query query : {Query::kSet, Query::kCompareSet, Query::kAppend}) {
    SCOPED_TRACE(str("the second text of ", static_cast<int>(query)));
    check(Message(query).add_text("key"), Reader::kLongestText);
  }
  for (const Query query : {Query::kCheck, Query::kWait, Query::kMultiGet, Query::kMultiSet}) {
    SCOPED_TRACE(str("list ", static_cast<int>(query)));
    check(Message(query), Reader::kMostTexts);
    check(Message(query).add(std::uint64_t{3}), Reader::kLongestText);
  }
}

// --- With a secret -------------------------------------------------------------------------------

TEST(StoreProof, AdmitsTheSecretAlone) {
  ServedStore store({.mac = mac_of_key("secret")});
  Connection member(store.options(mac_of_key("secret")));
  member.set("k", "v");
  EXPECT_EQ(member.get({"k"})[0], "v");
  const std::string at = str("the store at 127.0.0.1:", store.port);
  EXPECT_EQ(message_of<CommError>([&] { Connection{store.options(mac_of_key("other"))}; }),
            str("rank 1 and rank 0, which serves ", at,
                ", have different secrets (LOCKSTEP_SECRET); give all ranks the same"));
  EXPECT_EQ(message_of<CommError>([&] { Connection{store.options()}; }),
            str("rank 1 was started without LOCKSTEP_SECRET, rank 0, which serves ", at,
                ", with; give all ranks the same"));
  ServedStore open;
  EXPECT_THAT(message_of<CommError>([&] { Connection{open.options(mac_of_key("secret"))}; }),
              HasSubstr("rank 1 was started with LOCKSTEP_SECRET, rank 0, which serves"));
  EXPECT_EQ(member.count_keys(), 1);
}

// Every query, and the proofs that a process can make without the secret.
TEST(StoreProof, IsNeededForEveryQuery) {
  const Mac mac = mac_of_key("secret");
  ServedStore store({.mac = mac});
  Connection member(store.options(mac));
  member.set("k", "v");
  ASSERT_TRUE(member.check({"k"}));
  const std::string number(kNumberBytes, 'n');
  const Message refused[] = {
      Message(Query::kSet).add_text("k").add_text("w"),
      Message(Query::kCompareSet).add_text("k").add_text("v").add_text("w"),
      Message(Query::kGet).add_text("k"),
      Message(Query::kAdd).add_text("n").add(std::int64_t{1}),
      Message(Query::kCheck).add_texts({"k"}),
      Message(Query::kWait).add_texts({"k"}),
      Message(Query::kCountKeys),
      Message(Query::kDelete).add_text("k"),
      Message(Query::kAppend).add_text("k").add_text("w"),
      Message(Query::kMultiGet).add_texts({"k"}),
      Message(Query::kMultiSet).add(std::uint64_t{1}).add_text("k").add_text("w"),
      Message(Query::kCancelWait),
      Message(Query::kMeet).add_text("short"),
      Message(Query::kProve).add_text(client_proof(mac, number, "")),
      Message(Query::kSet).add_text("k").add(std::uint64_t{1} << 20),  // announces a long text
      Message(Query::kWait).add(std::uint64_t{1} << 17),               // announces a long list
  };
  for (const Message& query : refused) {
    SCOPED_TRACE(static_cast<int>(query.bytes()[0]));
    RawClient stranger(store.port);
    stranger.greet();
    stranger.send(query);
    EXPECT_TRUE(stranger.is_closed_by_store());
  }
  EXPECT_EQ(member.get({"k"})[0], "v");
  EXPECT_EQ(member.count_keys(), 1);
}

// The recorded bytes of a member, and what can be made of them.
TEST(StoreProof, CannotBeReplayed) {
  const Mac mac = mac_of_key("secret");
  ServedStore store({.mac = mac});
  const std::string own(kNumberBytes, 'n');
  RawClient member(store.port);
  member.greet();
  member.send(Message(Query::kMeet).add_text(own));
  const std::string number = member.receive_text();
  ASSERT_EQ(number.size(), kNumberBytes);
  const std::string proof = client_proof(mac, own, number);
  member.send(Message(Query::kProve).add_text(proof));
  const std::string answer = member.receive_text();
  EXPECT_EQ(answer, store_proof(mac, own, number));
  member.send(Message(Query::kCountKeys));
  EXPECT_EQ(member.receive(8).size(), 8U) << "the member is not admitted";
  for (const std::string& forged :
       {proof, answer, own, number, std::string(), std::string(32, 0)}) {
    RawClient stranger(store.port);
    stranger.greet();
    stranger.send(Message(Query::kMeet).add_text(own));
    EXPECT_NE(stranger.receive_text(), number);
    stranger.send(Message(Query::kProve).add_text(forged));
    EXPECT_EQ(stranger.receive_text(), "");
    EXPECT_TRUE(stranger.is_closed_by_store());
  }
}

// A store must prove the secret, too: otherwise its port could be taken by another program.
TEST(StoreProof, IsDemandedOfTheStore) {
  const Mac mac = mac_of_key("secret");
  const int fd = comm::listen_on("127.0.0.1", 0);
  const ConnectionOptions options{.who = "rank 1",
                                  .port = comm::bound_port(fd),
                                  .timeout = seconds(30),
                                  .served_by_rank_0 = true,
                                  .mac = mac};
  std::thread impostor([fd] {
    const Descriptor connection(accept(fd, nullptr, nullptr));
    std::array<char, 10> greeting;
    recv(connection.get(), greeting.data(), greeting.size(), MSG_WAITALL);
    send(connection.get(), greeting.data() + 6, 4, MSG_NOSIGNAL);
    std::array<char, 9 + kNumberBytes> text;
    recv(connection.get(), text.data(), text.size(), MSG_WAITALL);  // kMeet
    send(connection.get(), text.data() + 1, 8 + kNumberBytes, MSG_NOSIGNAL);
    recv(connection.get(), text.data(), text.size(), MSG_WAITALL);  // kProve: send it back
    send(connection.get(), text.data() + 1, 8 + kNumberBytes, MSG_NOSIGNAL);
  });
  EXPECT_THAT(message_of<CommError>([&] { Connection{options}; }), HasSubstr("different secrets"));
  impostor.join();
  close(fd);
}

// Silent connections hold few places, for a short time.
TEST(StoreProof, SilentConnectionsKeepNobodyOut) {
  const Mac mac = mac_of_key("secret");
  ServedStore store({.mac = mac, .most_strangers = 4, .time_to_prove = milliseconds(200)});
  Connection member(store.options(mac));
  std::vector<RawClient> strangers;
  for (int i = 0; i < 30; ++i) strangers.emplace_back(store.port);
  for (int i = 0; i < 30; i += 2) strangers[static_cast<std::size_t>(i)].greet();
  member.set("k", "v");
  EXPECT_EQ(member.get({"k"})[0], "v");
  Connection late(store.options(mac));  // gets in once those before it are closed
  EXPECT_EQ(late.get({"k"})[0], "v");
  EXPECT_TRUE(strangers[0].is_closed_by_store());
  EXPECT_TRUE(strangers[1].is_closed_by_store());
  // A member that is silent for longer than strangers may be stays.
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(member.get({"k"})[0], "v");
  EXPECT_EQ(late.get({"k"})[0], "v");
}

// A store without a secret admits a connection with its first message.
TEST(StoreProof, SilentConnectionsAreClosedWithoutASecret) {
  ServedStore store({.most_strangers = 2, .time_to_prove = milliseconds(200)});
  std::vector<RawClient> strangers;
  for (int i = 0; i < 6; ++i) strangers.emplace_back(store.port);
  Connection member(store.options());
  EXPECT_TRUE(strangers[0].is_closed_by_store());
  member.set("k", "v");
  EXPECT_EQ(member.get({"k"})[0], "v");
}

TEST(StoreProof, ManyMembersProveAtOnce) {
  const Mac mac = mac_of_key("secret");
  ServedStore store({.mac = mac, .most_strangers = 2});
  constexpr int kMembers = 24;
  const auto errors = testing_support::run_threads(kMembers, [&](int rank) {
    Connection member(store.options(mac));
    if (member.add("count", 1) == kMembers) member.set("all", "");
    if (!member.wait({"all"}, seconds(30))) throw Error(str("rank ", rank, " waited in vain"));
  });
  EXPECT_EQ(errors, testing_support::no_errors(kMembers));
}

}  // namespace
}  // namespace lockstep::tcp_store
