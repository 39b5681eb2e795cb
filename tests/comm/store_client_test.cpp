// Compatibility of Lockstep's store with LibTorch's, and the ranks' use of the store before they
// have a backend.
#include <lockstep/comm/rendezvous/store_client.h>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#if __has_include(<torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>)  // since LibTorch 2.14
#include <torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>
#else
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <c10/util/Logging.h>

#include <lockstep/comm/rendezvous/quiet_store.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/tcp_store.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

using Query = tcp_store::Query;
using c10d::detail::QueryType;
static_assert(tcp_store::kMagic == c10d::detail::validationMagicNumber);
static_assert(same(Query::kValidate, QueryType::VALIDATE) && same(Query::kSet, QueryType::SET));
static_assert(same(Query::kCompareSet, QueryType::COMPARE_SET));
static_assert(same(Query::kGet, QueryType::GET) && same(Query::kAdd, QueryType::ADD));
static_assert(same(Query::kCheck, QueryType::CHECK) && same(Query::kWait, QueryType::WAIT));
static_assert(same(Query::kCountKeys, QueryType::GETNUMKEYS));
static_assert(same(Query::kDelete, QueryType::DELETE_KEY));
static_assert(same(Query::kAppend, QueryType::APPEND));
static_assert(same(Query::kMultiGet, QueryType::MULTI_GET));
static_assert(same(Query::kMultiSet, QueryType::MULTI_SET));
static_assert(same(Query::kCancelWait, QueryType::CANCEL_WAIT));
static_assert(same(Query::kPing, QueryType::PING));
static_assert(same(tcp_store::Found::kNotAll, c10d::detail::CheckResponseType::NOT_READY));
static_assert(same(tcp_store::Waited::kCancelled, c10d::detail::WaitResponseType::WAIT_CANCELED));

using Store = c10::intrusive_ptr<c10d::Store>;

// Checks what each combination of server and client must support.
void use(c10d::Store& store, c10d::Store& other) {
  store.set("a", "1");
  EXPECT_EQ(other.get_to_str("a"), "1");
  EXPECT_EQ(other.compareSet("a", std::string("1"), std::string("2")), "2");
  EXPECT_EQ(store.compareSet("a", std::string("1"), std::string("3")), "2");
  EXPECT_EQ(store.compareSet("none", std::string("x"), std::string("3")), "x");
  EXPECT_EQ(store.add("n", 2) + other.add("n", 3), 2 + 5);
  EXPECT_TRUE(other.check({"a", "n"}));
  EXPECT_FALSE(other.check({"a", "b"}));
  EXPECT_ANY_THROW(other.wait({"b"}, std::chrono::milliseconds(20)));
  store.append("b", store_bytes("x"));
  store.append("b", store_bytes("y"));
  store.multiSet({"c", "d"}, {store_bytes("C"), store_bytes("D")});
  other.wait({"b", "c", "d"}, std::chrono::seconds(20));
  EXPECT_EQ(store_text(other.multiGet({"b", "d"})[0]), "xy");
  EXPECT_EQ(store_text(other.multiGet({"b", "d"})[1]), "D");
  EXPECT_TRUE(other.deleteKey("b"));
  EXPECT_FALSE(store.check({"b"}));
  EXPECT_EQ(other.clone()->get_to_str("a"), "2");
}

Store client_of(std::uint16_t port, std::shared_ptr<tcp_store::Server> server = nullptr) {
  return c10::make_intrusive<StoreClient>(tcp_store::ConnectionOptions{.port = port}, server);
}

TEST(StoreClient, UnderstandsLibTorchsServers) {
  for (const bool uv : {true, false}) {
    const int fd = listen_on("127.0.0.1", 0);
    c10d::TCPStoreOptions options;
    options.port = bound_port(fd);
    options.isServer = true;
    options.waitWorkers = false;
    options.useLibUV = uv;
    options.masterListenFd = fd;
    const Store theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    use(*client_of(options.port), *theirs);
  }
}

TEST(StoreServer, UnderstandsLibTorchsClient) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  const Store ours = client_of(port, std::make_shared<tcp_store::Server>(fd));
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  const Store theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  use(*theirs, *ours);
}

TEST(StoreClient, NamesWhoWaitedForWhat) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto server = std::make_shared<tcp_store::Server>(fd);
  const Store store = c10::make_intrusive<StoreClient>(
      tcp_store::ConnectionOptions{
          .who = "rank 3", .port = bound_port(fd), .timeout = std::chrono::seconds(30)},
      server);
  store->setTimeout(std::chrono::milliseconds(20));
  store->set("a", "1");
  EXPECT_EQ(testing_support::message_of<TimeoutError>([&] { store->wait({"a", "b", "c"}); }),
            "rank 3 waited 0.02 s for a, b, c in the store");
  EXPECT_EQ(testing_support::message_of<TimeoutError>(
                [&] { store->wait({"b"}, std::chrono::milliseconds(5)); }),
            "rank 3 waited 0.005 s for b in the store");
  EXPECT_EQ(testing_support::message_of<TimeoutError>([&] { store->get("b"); }),
            "rank 3 waited 0.02 s for b in the store");
  EXPECT_EQ(store->getNumKeys(), 1);
  EXPECT_ANY_THROW(store->multiSet({"a", "b"}, {store_bytes("x")}));
}

// LibTorch's name for no limit is zero.
TEST(StoreClient, WaitsWithoutALimitIfItIsToldSo) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  const Store store = client_of(port, std::make_shared<tcp_store::Server>(fd));
  const Store other = client_of(port);
  auto wait =
      std::async(std::launch::async, [&] { other->wait({"late"}, c10d::Store::kNoTimeout); });
  EXPECT_EQ(wait.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  store->set("late", "");
  EXPECT_NO_THROW(wait.get());
}

// A client that another one was cloned from may go, and with it the last one that held the server.
TEST(StoreClient, KeepsTheServerOfTheOneThatItWasClonedFrom) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  Store first =
      c10::make_intrusive<StoreClient>(tcp_store::ConnectionOptions{.who = "rank 3", .port = port},
                                       std::make_shared<tcp_store::Server>(fd));
  first->set("a", "1");
  const Store clone = first->clone();
  first.reset();
  EXPECT_EQ(clone->get_to_str("a"), "1");
  EXPECT_EQ(testing_support::message_of<TimeoutError>(
                [&] { clone->wait({"b"}, std::chrono::milliseconds(5)); }),
            "rank 3 waited 0.005 s for b in the store");
}

TEST(QuietStore, ForwardsEveryCallQuietly) {
  const Store plain = c10::make_intrusive<c10d::HashStore>();
  const Store quiet = c10::make_intrusive<QuietStore>(plain);
  const int before = FLAGS_caffe2_log_level;
  use(*quiet, *plain);
  EXPECT_EQ(quiet->getNumKeys(), plain->getNumKeys());
  for (const char* key : {"a", "n", "c", "d"}) EXPECT_TRUE(quiet->deleteKey(key)) << key;
  EXPECT_EQ(plain->getNumKeys(), 0);
  use(*plain, *quiet);
  quiet->setTimeout(std::chrono::milliseconds(7));
  EXPECT_EQ(plain->getTimeout(), std::chrono::milliseconds(7));
  EXPECT_ANY_THROW(quiet->wait({"missing"}));
  EXPECT_EQ(FLAGS_caffe2_log_level, before);
}

// LibTorch has one level for the whole process, with the numbers of glog.
TEST(QuietStore, KeepsTheLevelThatTheProgramHasChosen) {
  constexpr int kInfo = 0, kWarnings = 1, kErrors = 2, kFatal = 3;
  int& level = FLAGS_caffe2_log_level;
  const int at_first = level;
  level = kWarnings;
  {
    const QuietLibTorch outer;
    EXPECT_EQ(level, kErrors);
    {
      const QuietLibTorch inner;
      EXPECT_EQ(level, kErrors);
    }
    EXPECT_EQ(level, kErrors) << "the outer one is still there";
  }
  EXPECT_EQ(level, kWarnings);
  {
    const QuietLibTorch quiet;
    level = kInfo;
  }
  EXPECT_EQ(level, kInfo) << "changed by the program in the meantime";
  level = kFatal;
  {
    const QuietLibTorch quiet;
    EXPECT_EQ(level, kFatal) << "quieter than that";
  }
  EXPECT_EQ(level, kFatal);
  level = kWarnings;
  const bool tells = log_enabled(LogLevel::kInfo);
  set_log_level(LogLevel::kDebug);
  {
    const QuietLibTorch quiet;
    EXPECT_EQ(level, kWarnings) << "this library's user wants to see everything";
  }
  set_log_level(tells ? LogLevel::kInfo : LogLevel::kWarning);
  level = at_first;
}

// Simulates a stopped rank 0: the store accepts queries and answers none.
TEST(TextExchange, EndsSoonAfterItsDeadlineWhereTheStoreIsSilent) {
  const int fd = listen_on("127.0.0.1", 0);
  std::jthread silent([fd] {
    const int connection = accept(fd, nullptr, nullptr);
    char bytes[10];
    if (recv(connection, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes)) {
      send(connection, bytes + 6, 4, MSG_NOSIGNAL);  // answers the greeting
    }
    while (recv(connection, bytes, sizeof(bytes), 0) > 0) {
    }
    close(connection);
  });
  const auto start = Clock::now();
  {
    const tcp_store::ConnectionOptions options{.port = bound_port(fd),
                                               .timeout = std::chrono::minutes(1)};
    TextExchange exchange(c10::make_intrusive<StoreClient>(options), 0, 2, options.timeout);
    EXPECT_THAT(testing_support::message_of<TimeoutError>(
                    [&] { exchange.exchange("topic", "", {}, std::chrono::milliseconds(300)); }),
                ::testing::HasSubstr("for an answer of the store at 127.0.0.1"));
  }
  EXPECT_LT(seconds_since(start), 20);
  close(fd);
}

// LibTorch's stores report a wait that timed out with different errors. FileStore's, thrown after a
// second, is the most general one.
TEST(TextExchange, WaitsForALateRankInEveryStore) {
  const testing_support::TemporaryDirectory folder;
  const auto meet = [](const std::function<Store(int rank)>& store_of) {
    return testing_support::run_threads(2, [&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
      TextExchange exchange(store_of(rank), rank, 2, std::chrono::seconds(60));
      EXPECT_EQ(exchange.exchange("topic", rank == 0 ? "a" : "b"),
                (std::vector<std::string>{"a", "b"}));
    });
  };
  EXPECT_EQ(meet([&](int) -> Store {
              return c10::make_intrusive<c10d::FileStore>((folder / "store").string(), 2);
            }),
            testing_support::no_errors(2));
  const auto shared = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(meet([&](int) -> Store { return shared; }), testing_support::no_errors(2));
  const int fd = listen_on("127.0.0.1", 0);
  const std::array tcp{testing_support::tcp_store(0, fd), testing_support::tcp_store(1, fd)};
  EXPECT_EQ(meet([&](int rank) -> Store { return tcp.at(rank); }), testing_support::no_errors(2));
}

TEST(TextExchange, TakesNoTextsOfAnotherProgram) {
  const std::string one_text = "t" + tcp_store::Message().add_texts({"a"}).bytes();
  const std::string two_texts = "t" + tcp_store::Message().add_texts({"a", "b"}).bytes();
  for (const std::string& strange :
       {std::string(), std::string("x"), std::string("t"), std::string("t garbage"), one_text,
        two_texts + "more", "t" + std::string(8, '\xff')}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    store->set("topic/all", store_bytes(strange));
    TextExchange exchange(store, 1, 2, std::chrono::seconds(10));
    EXPECT_EQ(testing_support::message_of<CommError>([&] { exchange.exchange("topic", ""); }),
              "another program has written into the store of this job")
        << strange;
  }
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->set("topic/all", store_bytes(two_texts));
  EXPECT_EQ(TextExchange(store, 1, 2, std::chrono::seconds(10)).exchange("topic", ""),
            (std::vector<std::string>{"a", "b"}));
}

TEST(TextExchange, SaysWhomItWaitsFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  TextExchange exchange(store, 0, 3, std::chrono::milliseconds(50), {4, 7, 9});
  const auto error_in = [&](const std::string& topic) {
    return testing_support::message_of<TimeoutError>([&] { exchange.exchange(topic, "a"); });
  };
  EXPECT_EQ(error_in("first"), "rank 4 waited 0.05 s for ranks 7, 9 of 3 in the first");
  store->set("second/1", store_bytes("b"));
  EXPECT_EQ(error_in("second"), "rank 4 waited 0.05 s for rank 9 of 3 in the second");
  for (const char* key : {"third/1", "third/2"}) store->set(key, store_bytes("b"));
  EXPECT_EQ(error_in("third"), "rank 4 waited 0.05 s for the last of 3 in the third")
      << "no rank has put the texts together";
  for (const char* key : {"fourth/1", "fourth/2"}) store->set(key, store_bytes("b"));
  store->add("fourth/count", 2);
  store->set("fourth/read/2", store_bytes(""));
  EXPECT_EQ(error_in("fourth"), "rank 4 waited 0.05 s for rank 7 of 3 in the fourth")
      << "rank 0 stays until all have read the texts";
  TextExchange last(store, 2, 3, std::chrono::milliseconds(50), {4, 7, 9});
  const auto error_of_last = [&](const std::string& topic) {
    return testing_support::message_of<TimeoutError>([&] { last.exchange(topic, "c"); });
  };
  EXPECT_EQ(error_of_last("fifth"), "rank 9 waited 0.05 s for ranks 4, 7 of 3 in the fifth");
  store->set("sixth/1", store_bytes("b"));
  EXPECT_EQ(error_of_last("sixth"), "rank 9 waited 0.05 s for rank 4 of 3 in the sixth");
}

TEST(TextExchange, LeavesNothingInTheStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::vector<std::string> texts = {"", std::string("a\0b", 3), std::string(100'000, 'x')};
  const auto errors = testing_support::run_threads(3, [&](int rank) {
    TextExchange exchange(store, rank, 3, std::chrono::seconds(60));
    for (const char* topic : {"first", "second", "third"}) {
      EXPECT_EQ(exchange.exchange(topic, texts[static_cast<std::size_t>(rank)]), texts) << topic;
    }
  });
  EXPECT_EQ(errors, testing_support::no_errors(3));
  EXPECT_EQ(store->getNumKeys(), 0);
}

// The check of a call takes the place of the general one.
TEST(TextExchange, EndsSoonAfterItsCheckFails) {
  const auto start = Clock::now();
  TextExchange exchange(c10::make_intrusive<c10d::HashStore>(), 0, 2, std::chrono::minutes(5));
  exchange.meanwhile([] { throw CommError("rank 1 died"); });
  EXPECT_EQ(testing_support::message_of<CommError>([&] { exchange.exchange("first", ""); }),
            "rank 1 died");
  EXPECT_EQ(testing_support::message_of<CommError>([&] {
              exchange.exchange("second", "", [] { throw CommError("the group has ended"); });
            }),
            "the group has ended");
  EXPECT_LT(seconds_since(start), 60);
}

// The other ranks wait in the topic of the refusal, or in one that they have reached meanwhile.
TEST(TextExchange, TellsOfARefusalInEveryTopic) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = testing_support::run_threads(3, [&](int rank) {
    TextExchange exchange(store, rank, 3, std::chrono::seconds(60));
    exchange.meanwhile([] {});  // a rank with a check looks more often
    if (rank == 2) exchange.refuse("first", "rank 2 has no address");
    exchange.exchange(rank == 0 ? "first" : "second", "");
  });
  EXPECT_THAT(errors, ::testing::Each(std::string("rank 2 has no address")));
}

// Counts the calls of this process, including LibTorch's, since the last start_counting().
std::atomic<int> names_looked_up = 0;   // getnameinfo(): name of an address
std::atomic<int> hosts_looked_up = 0;   // getaddrinfo(): addresses of a name
std::atomic<int> addresses_parsed = 0;  // getaddrinfo() of a numeric address

// A host that the name server knows as 127.0.0.1, once it has put off this number of look-ups.
constexpr std::string_view kLateHost = "late-host";
std::atomic<int> look_ups_put_off = 0;

void start_counting() {
  names_looked_up = 0;
  hosts_looked_up = 0;
  addresses_parsed = 0;
}

}  // namespace
}  // namespace lockstep::comm

// These two functions replace the C library's, also for LibTorch.
extern "C" [[gnu::visibility("default")]] int getnameinfo(const sockaddr* address, socklen_t size,
                                                          char* host, socklen_t host_size,
                                                          char* service, socklen_t service_size,
                                                          int flags) {
  if ((flags & NI_NUMERICHOST) == 0) ++lockstep::comm::names_looked_up;
  static const auto real =
      reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_NEXT, "getnameinfo"));
  return real(address, size, host, host_size, service, service_size, flags | NI_NUMERICHOST);
}

extern "C" [[gnu::visibility("default")]] int getaddrinfo(const char* host, const char* service,
                                                          const addrinfo* hints,
                                                          addrinfo** results) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  // With AI_NUMERICHOST no name is looked up. Without it, a numeric address is not looked up
  // either.
  const bool only_addresses = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (host != nullptr && !only_addresses && host == lockstep::comm::kLateHost) {
    if (lockstep::comm::look_ups_put_off-- > 0) return EAI_AGAIN;
    host = "127.0.0.1";
  }
  if (host != nullptr && !only_addresses) {
    addrinfo numeric{};
    numeric.ai_flags = AI_NUMERICHOST;
    addrinfo* parsed = nullptr;
    if (real(host, nullptr, &numeric, &parsed) == 0) {
      freeaddrinfo(parsed);
      ++lockstep::comm::addresses_parsed;
    } else {
      ++lockstep::comm::hosts_looked_up;
    }
  }
  return real(host, service, hints, results);
}

namespace lockstep::comm {
namespace {

// A name server that does not answer would delay each look-up for seconds.
TEST(InitProcessGroup, LooksUpNoNamesWhereAnAddressWouldDo) {
  {
    const int fd = listen_on("127.0.0.1", 0);
    start_counting();
    testing_support::tcp_store(0, fd);
    EXPECT_GT(names_looked_up, 0) << "LibTorch's store does not: is ours needed?";
    EXPECT_GT(addresses_parsed, 0) << "LibTorch does not call the getaddrinfo() above";
  }
  start_counting();
  try {
    resolve_address("localhost");
  } catch (const CommError&) {
    // Whether this host knows the name does not matter: the look-up is counted.
  }
  EXPECT_EQ(hosts_looked_up, 1);
  start_counting();
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors =
        testing_support::run_group(2, backend, [](ProcessGroup group) { group.barrier(); });
    EXPECT_EQ(errors, testing_support::no_errors(2));
    EXPECT_EQ(names_looked_up, 0) << backend;
    EXPECT_EQ(hosts_looked_up, 0) << backend << ", with the store at 127.0.0.1";
    EXPECT_GT(addresses_parsed, 0) << backend;
  }
}

// As in Kubernetes, where the name of rank 0's host is known a little later.
TEST(Rendezvous, LooksAgainForANameWhenTheResolverAsksForIt) {
  testing_support::ScopedEnvironment variables;
  variables.set("LOCKSTEP_SECRET", std::nullopt);
  const testing_support::CapturedLog log;
  const int fd = listen_on("127.0.0.1", 0);
  look_ups_put_off = 1;
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    auto environment = testing_support::environment_of(rank, 2, fd);
    if (rank == 1) environment.master_addr = kLateHost;
    rendezvous(environment, std::chrono::seconds(20));
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
  EXPECT_LE(look_ups_put_off, 0) << "the name was looked up";
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(::testing::AllOf(
                               ::testing::HasSubstr("cannot resolve the host 'late-host': "),
                               ::testing::HasSubstr("; trying again for 20 s"))));
}

TEST(Rendezvous, TellsOfANameAtTheDeadlineAndOnRankZeroAtOnce) {
  testing_support::ScopedEnvironment variables;
  variables.set("LOCKSTEP_SECRET", std::nullopt);
  const testing_support::CapturedLog log;
  const int fd = listen_on("127.0.0.1", 0);
  auto environment = testing_support::environment_of(1, 2, fd);
  environment.master_addr = kLateHost;
  constexpr int kAlways = 1'000'000;
  look_ups_put_off = kAlways;
  EXPECT_THAT(testing_support::message_of<TimeoutError>(
                  [&] { rendezvous(environment, std::chrono::milliseconds(50)); }),
              ::testing::AllOf(::testing::StartsWith("rank 1: cannot resolve the host 'late-host'"),
                               ::testing::HasSubstr(", for 0.05 s; set MASTER_ADDR to ")));
  EXPECT_GE(kAlways - look_ups_put_off, 2);
  environment.rank = 0;
  look_ups_put_off = kAlways;
  EXPECT_THAT(testing_support::message_of<CommError>(
                  [&] { rendezvous(environment, std::chrono::minutes(1)); }),
              ::testing::StartsWith("rank 0: cannot resolve the host 'late-host'"));
  EXPECT_EQ(kAlways - look_ups_put_off, 1);
  close(fd);
  // The resolver knows that there is no such host.
  start_counting();
  environment.rank = 1;
  environment.master_addr = "no such host.";
  EXPECT_THAT(testing_support::message_of<CommError>(
                  [&] { rendezvous(environment, std::chrono::minutes(1)); }),
              ::testing::StartsWith("rank 1: cannot resolve the host 'no such host.'"));
  EXPECT_EQ(hosts_looked_up, 1);
}

// What rank 0 knows of its host, whose name is a loopback address there, and what rank 1 knows.
std::array<OwnAddress, 2> addresses_with(const std::string& contact) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::array<OwnAddress, 2> found;
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    TextExchange exchange(store, rank, 2, std::chrono::seconds(60));
    found.at(static_cast<std::size_t>(rank)) =
        rank == 0 ? agree_on_address(exchange, "", "")
                  : agree_on_address(exchange, "192.0.2.7", contact);
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
  return found;
}

TEST(OwnAddress, OfAHostKnownAsLoopbackIsTheOneThatOtherHostsReach) {
  const auto found = addresses_with("127.0.0.1");  // an address of this machine
  EXPECT_EQ(found[0].address, "127.0.0.1");
  EXPECT_EQ(found[1].address, "192.0.2.7");
  for (const OwnAddress& each : found) EXPECT_EQ(each.problem, "");
}

TEST(OwnAddress, ThatIsMissingIsToldToAllRanks) {
  const auto found = addresses_with("192.0.2.1");  // no machine has it
  EXPECT_EQ(found[0].address, "");
  for (const OwnAddress& each : found) {
    EXPECT_THAT(each.problem, ::testing::HasSubstr("set MASTER_ADDR to the address at which"));
  }
}

TEST(OwnAddress, IsTheFirstContactThatThisHostHas) {
  const std::array<std::string, 3> known = {"", "192.0.2.7", "192.0.2.8"};
  const std::array<std::string, 3> contacts = {"", "192.0.2.1", "127.0.0.1"};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = testing_support::run_threads(3, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    TextExchange exchange(store, rank, 3, std::chrono::seconds(60));
    const OwnAddress own = agree_on_address(exchange, known.at(place), contacts.at(place));
    EXPECT_EQ(own.address, rank == 0 ? "127.0.0.1" : known.at(place));
    EXPECT_EQ(own.problem, "");
  });
  EXPECT_EQ(errors, testing_support::no_errors(3));
}

// The other rank is on this host, too, and makes the same error.
TEST(OwnAddress, OnOneHostIsFoundWithoutTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  TextExchange exchange(store, 0, 2, std::chrono::seconds(60));
  const auto find = [&](const std::string& meeting_host) {
    return find_own_address(exchange, meeting_host, 1, /*several_hosts=*/false,
                            std::chrono::seconds(60));
  };
  EXPECT_EQ(find("127.0.0.1").address, "127.0.0.1");
  EXPECT_EQ(find("127.0.0.1").problem, "");
  EXPECT_THAT(testing_support::message_of<CommError>([&] { find("no such host."); }),
              ::testing::StartsWith("cannot resolve the host 'no such host.'"));
  EXPECT_EQ(store->getNumKeys(), 0);
}

TEST(OwnAddress, ThatOneRankCannotFindIsAnErrorOfAllRanks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    TextExchange exchange(store, rank, 2, std::chrono::seconds(60));
    find_own_address(exchange, rank == 0 ? "127.0.0.1" : "no such host.", 1,
                     /*several_hosts=*/true, std::chrono::seconds(60));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("cannot resolve the host 'no such host.'"));
  }
}

}  // namespace
}  // namespace lockstep::comm
