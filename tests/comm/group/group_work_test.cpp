// The Work that a group returns, its log of calls, and what a group derives from its members.
#include <lockstep/comm/group/group_work.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <lockstep/comm/group/choose_backend.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/group/peer_info.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

// An operation whose end a test decides.
class ScriptedWork final : public Work {
 public:
  void wait(std::optional<milliseconds> timeout) override {
    limits.push_back(timeout);
    if (on_wait) on_wait();
  }
  bool is_completed() override {
    ++polls;
    return completed;
  }
  std::exception_ptr error() const override { return failure; }
  int source_rank() const override { return 5; }

  std::function<void()> on_wait{};
  bool completed = true;
  std::exception_ptr failure{};
  int polls = 0;
  std::vector<std::optional<milliseconds>> limits{};
};

class WorkOfAGroup : public ::testing::Test {
 protected:
  std::shared_ptr<CallLog> new_log() const {
    return std::make_shared<CallLog>(std::make_shared<FlightRecorder>(0, 2, 10),
                                     directory_.path() / "flight", "world", std::vector<int>{0, 1});
  }
  static FlightRecorder::Id new_call(CallLog& log) {
    Collective call;
    call.description.kind = CallKind::kAllReduce;
    log.number(call);
    return log.created(call);
  }
  std::shared_ptr<Work> work_of(const std::shared_ptr<ScriptedWork>& inner,
                                TensorPairs copies = {}) {
    return std::make_shared<GroupWork>(inner, std::move(copies), log_, new_call(*log_),
                                       /*runs_on_stream=*/false);
  }
  bool has_dump() const { return std::filesystem::exists(directory_.path() / "flight" / "rank_0"); }
  std::string place_of_dump() const {
    return str("; flight recorder in ", (directory_.path() / "flight" / "rank_0").string());
  }

  const testing_support::TemporaryDirectory directory_;
  const std::shared_ptr<CallLog> log_ = new_log();
};

TEST_F(WorkOfAGroup, CopiesItsResultsOnce) {
  for (const bool polls : {false, true}) {
    const auto inner = std::make_shared<ScriptedWork>();
    const auto result = torch::zeros({3});
    const auto memory = torch::ones({3});
    const auto work = work_of(inner, {{result, memory}});
    inner->completed = false;
    EXPECT_FALSE(work->is_completed());
    EXPECT_TRUE(result.equal(torch::zeros({3})));
    inner->completed = true;
    if (polls) {
      EXPECT_TRUE(work->is_completed());
    } else {
      work->wait();
    }
    EXPECT_TRUE(result.equal(torch::ones({3})));
    memory.fill_(7);
    work->wait();
    EXPECT_TRUE(work->is_completed());
    EXPECT_TRUE(result.equal(torch::ones({3})));
    EXPECT_EQ(inner->limits.size(), polls ? 0U : 1U);
    EXPECT_EQ(inner->polls, polls ? 2 : 1);
    EXPECT_EQ(work->error(), nullptr);
    EXPECT_EQ(work->source_rank(), 5);
  }
}

TEST_F(WorkOfAGroup, GoesOnAfterAWaitThatWasWrong) {
  const auto inner = std::make_shared<ScriptedWork>();
  const auto work = work_of(inner);
  inner->on_wait = [] { throw ConfigError("not here"); };
  EXPECT_EQ(message_of<ConfigError>([&] { work->wait(); }), "not here");
  EXPECT_EQ(work->error(), nullptr);
  inner->on_wait = {};
  work->wait(milliseconds(7));
  EXPECT_EQ(inner->limits.back(), milliseconds(7));
  EXPECT_TRUE(work->is_completed());
}

TEST_F(WorkOfAGroup, EndsWithTheErrorOfAWrongCall) {
  const auto inner = std::make_shared<ScriptedWork>();
  const auto work = work_of(inner);
  inner->failure = std::make_exception_ptr(ConfigError("wrong"));
  inner->on_wait = [&] { std::rethrow_exception(inner->failure); };
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(message_of<ConfigError>([&] { work->wait(); }), "wrong");
    inner->on_wait = {};
  }
  EXPECT_NE(work->error(), nullptr);
  EXPECT_TRUE(work->is_completed());
  EXPECT_FALSE(has_dump()) << "the group is still usable";
  const auto failure = log_->failed(new_call(*log_), std::make_exception_ptr(CommError("later")));
  EXPECT_EQ(message_of<CommError>([&] { std::rethrow_exception(failure); }),
            "later" + place_of_dump())
      << "the first failure of the group";
}

TEST_F(WorkOfAGroup, NumbersCollectivesAndMessagesApart) {
  Collective call;
  std::uint64_t collectives = 0;
  std::uint64_t messages = 0;
  for (int round = 0; round < 2; ++round) {
    for (int kind = 0; kind <= static_cast<int>(CallKind::kRecv); ++kind) {
      call.description.kind = static_cast<CallKind>(kind);
      const bool is_message =
          call.description.kind == CallKind::kSend || call.description.kind == CallKind::kRecv;
      log_->number(call);
      EXPECT_EQ(call.number, is_message ? messages++ : collectives++)
          << call_name(call.description.kind);
    }
  }
  new_log()->number(call);
  EXPECT_EQ(call.number, 0U) << "each group counts for itself";
}

// The first failure of a group names the dump of its flight recorder, in every wait.
TEST_F(WorkOfAGroup, FailsInEveryWaitWithTheSameWords) {
  const auto failing = [](const std::shared_ptr<ScriptedWork>& inner) {
    inner->on_wait = [] { throw CommError("rank 1 died"); };
    return inner;
  };
  const auto first = work_of(failing(std::make_shared<ScriptedWork>()));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(message_of<CommError>([&] { first->wait(); }), "rank 1 died" + place_of_dump());
  }
  EXPECT_TRUE(has_dump());
  const auto second = work_of(failing(std::make_shared<ScriptedWork>()));
  EXPECT_EQ(message_of<CommError>([&] { second->wait(); }), "rank 1 died");
}

TEST_F(WorkOfAGroup, KeepsTheTypeOfItsError) {
  const auto late = std::make_shared<ScriptedWork>();
  late->failure = std::make_exception_ptr(TimeoutError("too late"));
  const auto work = work_of(late);
  EXPECT_TRUE(work->is_completed()) << "with an error";
  EXPECT_EQ(message_of<TimeoutError>([&] { work->wait(); }), "too late" + place_of_dump());
  // An error of another library keeps its text.
  const auto log = new_log();
  const std::exception_ptr foreign =
      log->failed(new_call(*log), std::make_exception_ptr(std::runtime_error("foreign")));
  EXPECT_EQ(message_of<std::runtime_error>([&] { std::rethrow_exception(foreign); }), "foreign");
}

TEST_F(WorkOfAGroup, IsWaitedForByOneThreadAtATime) {
  const auto inner = std::make_shared<ScriptedWork>();
  const auto work = work_of(inner);
  std::latch begun(1);
  std::latch ends(1);
  inner->on_wait = [&] {
    begun.count_down();
    ends.wait();
  };
  std::thread first([&] { work->wait(); });
  begun.wait();
  EXPECT_EQ(message_of<TimeoutError>([&] { work->wait(milliseconds(20)); }),
            "waited 0.02 s while another thread waits for the same operation");
  EXPECT_FALSE(work->is_completed());
  EXPECT_EQ(work->error(), nullptr);
  ends.count_down();
  first.join();
  work->wait(milliseconds(20));
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(inner->limits.size(), 1U);
}

TEST_F(WorkOfAGroup, MayBeAListThatEndsWithItsLast) {
  const std::vector<std::shared_ptr<ScriptedWork>> inner = {std::make_shared<ScriptedWork>(),
                                                            std::make_shared<ScriptedWork>(),
                                                            std::make_shared<ScriptedWork>()};
  WorkList list({inner[0], inner[1], inner[2]});
  inner[0]->completed = false;
  EXPECT_FALSE(list.is_completed());
  for (const auto& each : inner) EXPECT_EQ(each->polls, 1) << "each makes progress";
  inner[0]->completed = true;
  EXPECT_TRUE(list.is_completed());
  EXPECT_EQ(list.error(), nullptr);
  list.wait(std::nullopt);
  list.wait(milliseconds(5000));
  std::optional<milliseconds> before = milliseconds(5000);
  for (const auto& each : inner) {
    ASSERT_EQ(each->limits.size(), 2U);
    EXPECT_EQ(each->limits[0], std::nullopt);
    EXPECT_LE(each->limits[1], before) << "one deadline for all";
    EXPECT_GT(each->limits[1], milliseconds(0));
    before = each->limits[1];
  }
  inner[1]->failure = std::make_exception_ptr(CommError("second"));
  inner[2]->failure = std::make_exception_ptr(CommError("third"));
  EXPECT_EQ(message_of<CommError>([&] { std::rethrow_exception(list.error()); }), "second");
}

TEST_F(WorkOfAGroup, ThatNobodyWaitsForFailsInTheLog) {
  const testing_support::CapturedLog log;
  for (const char* text : {"lost", "lost again"}) {
    log_->failed_unseen(new_call(*log_), std::make_exception_ptr(CommError(text)));
  }
  EXPECT_THAT(log.lines(),
              ElementsAre(EndsWith("error: operations on the device have failed, their tensors "
                                   "are undefined: lost" +
                                   place_of_dump())));
  const auto failure = log_->failed(new_call(*log_), std::make_exception_ptr(CommError("seen")));
  EXPECT_EQ(message_of<CommError>([&] { std::rethrow_exception(failure); }),
            "seen" + place_of_dump());
}

TEST(FlightDirectory, IsTheCallersOrTheEnvironmentsOrTheUsers) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_FLIGHT_RECORDER", "/of/the/environment");
  EXPECT_EQ(flight_recorder_directory("/wanted", "job"), "/wanted");
  EXPECT_EQ(flight_recorder_directory(std::nullopt, "job"), "/of/the/environment");
  environment.set("LOCKSTEP_FLIGHT_RECORDER", std::nullopt);
  EXPECT_EQ(flight_recorder_directory(std::nullopt, "job"), user_flight_directory() / "job");
  EXPECT_EQ(flight_recorder_directory(std::nullopt), user_flight_directory());
}

// --- The members ---------------------------------------------------------------------------------

TEST(PeerInfos, NameTheJobByRankZero) {
  EXPECT_EQ(job_name({{.joined_at = 86399, .process = 4711}, {.joined_at = 7, .process = 12}}),
            "19700101T235959Z-4711");
}

// The errors of the ranks that exchange these PeerInfos. `check` gets what each rank learns.
std::vector<std::string> exchange_infos(
    const std::vector<PeerInfo>& given,
    const std::function<void(const std::vector<PeerInfo>&)>& check = {}) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const int size = static_cast<int>(given.size());
  return testing_support::run_threads(size, [&](int rank) {
    TextExchange exchange(store, rank, size, std::chrono::seconds(60));
    const auto peers = exchange_peer_infos(exchange, given[static_cast<std::size_t>(rank)]);
    if (check) check(peers);
  });
}

TEST(PeerInfos, ArriveAsTheyWereGiven) {
  const std::vector<PeerInfo> given = {{.backend = "gloo",
                                        .device = "cuda",
                                        .gpu = "",
                                        .host = "boot 17 4026531836",
                                        .world_rank = 41,
                                        .label = "store/41.1",
                                        .joined_at = 1'700'000'000,
                                        .process = 4711},
                                       {.backend = "gloo",
                                        .device = "cuda",
                                        .gpu = "the second GPU",
                                        .host = "",
                                        .world_rank = 7,
                                        .label = "store/7.2",
                                        .joined_at = 5'000'000'000,
                                        .process = 12}};
  const auto errors = exchange_infos(given, [&](const std::vector<PeerInfo>& got) {
    ASSERT_EQ(got.size(), given.size());
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_EQ(got[rank].backend, given[rank].backend);
      EXPECT_EQ(got[rank].device, given[rank].device);
      EXPECT_EQ(got[rank].gpu, given[rank].gpu);
      EXPECT_EQ(got[rank].host, given[rank].host);
      EXPECT_EQ(got[rank].world_rank, given[rank].world_rank);
      EXPECT_EQ(got[rank].label, given[rank].label);
      EXPECT_EQ(got[rank].joined_at, given[rank].joined_at);
      EXPECT_EQ(got[rank].process, given[rank].process);
    }
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

TEST(PeerInfos, OfRanksThatWantDifferentThingsAreRefused) {
  const PeerInfo first{.backend = "auto", .device = "cpu", .world_rank = 4, .label = "x"};
  PeerInfo other_device = first, other_backend = first;
  other_device.world_rank = other_backend.world_rank = 7;
  other_device.device = "cuda";
  other_backend.backend = "gloo";
  for (const PeerInfo& other : {other_device, other_backend}) {
    EXPECT_THAT(exchange_infos({first, other}),
                ::testing::Each(lockstep::str("ranks want different things: rank 4 backend auto on "
                                              "cpu, rank 7 backend ",
                                              other.backend, " on ", other.device)));
  }
}

TEST(PeerInfos, NameTheHostAsTheUserDoes) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_HOST_ID", std::nullopt);
  const PeerInfo plain = own_peer_info({.backend = "gloo"}, 3, "label");
  EXPECT_EQ(plain.backend, "gloo");
  EXPECT_EQ(plain.device, "cpu");
  EXPECT_EQ(plain.gpu, "");
  EXPECT_EQ(plain.world_rank, 3);
  EXPECT_EQ(plain.label, "label");
  EXPECT_EQ(plain.process, getpid());
  EXPECT_NE(plain.host, "");
  EXPECT_EQ(own_peer_info({}, 0, "").host, plain.host) << "another rank of this host";
  environment.set("LOCKSTEP_HOST_ID", "of the environment");
  EXPECT_EQ(own_peer_info({}, 0, "").host, "of the environment");
  EXPECT_EQ(own_peer_info({.host_id = "of the options"}, 0, "").host, "of the options");
}

// What rank `rank` logs where two ranks compute on one GPU.
std::vector<std::string> lines_of_sharing(const std::string& backend, int rank) {
  const PeerInfo first{.backend = backend, .device = "cuda", .gpu = "a"};
  PeerInfo second = first;
  second.world_rank = 1;
  const testing_support::CapturedLog log;
  tell_of_shared_devices({first, second}, rank);
  return log.lines();
}

TEST(PeerInfos, WarnOfAGpuThatIsShared) {
  testing_support::ScopedEnvironment environment;
  environment.set("NCCL_HOSTID", std::nullopt);
  environment.set("NCCL_MULTI_RANK_GPU_ENABLE", std::nullopt);
  EXPECT_THAT(lines_of_sharing("nccl", 0),
              ElementsAre(EndsWith("warning: ranks 0, 1 share a GPU, which NCCL refuses without "
                                   "the settings of `lockstep run --share-gpu`; choose backend "
                                   "auto or shm")));
  EXPECT_THAT(lines_of_sharing("nccl", 1), IsEmpty()) << "rank 0 says it for all";
  EXPECT_THAT(lines_of_sharing("auto", 0),
              ElementsAre(HasSubstr("warning: ranks 0, 1 share a GPU, and their tensors are "
                                    "reduced in host memory")));
  environment.set("NCCL_HOSTID", "lockstep-rank-0");
  EXPECT_THAT(lines_of_sharing("nccl", 0), IsEmpty()) << "the user has asked for it";
  const bool tells = log_enabled(LogLevel::kInfo);
  set_log_level(LogLevel::kInfo);
  EXPECT_THAT(lines_of_sharing("nccl", 0),
              ElementsAre(EndsWith("info: ranks 0, 1 share a GPU over NCCL: this is for "
                                   "correctness, not for speed")));
  if (!tells) set_log_level(LogLevel::kWarning);
}

TEST(PeerInfos, SayWhoSharesAHost) {
  const std::vector<PeerInfo> peers = {{.host = "b"}, {.host = "a"}, {.host = "b"}, {.host = "b"}};
  EXPECT_THAT(ranks_by_host(peers), ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1)));
  const std::vector<std::pair<int, int>> places = {{0, 3}, {0, 1}, {1, 3}, {2, 3}};
  for (int rank = 0; rank < 4; ++rank) {
    const LocalPlace place = local_place(peers, rank);
    EXPECT_EQ(std::pair(place.rank, place.size), places[static_cast<std::size_t>(rank)]) << rank;
  }
  EXPECT_THROW(local_place(peers, 4), InternalError);
}

TEST(PeerInfos, DecideForNccl) {
  const PeerInfo cpu{.device = "cpu"};
  const PeerInfo first{.device = "cuda", .gpu = "first"};
  const PeerInfo second{.device = "cuda", .gpu = "second"};
  const PeerInfo without_name{.device = "cuda"};
  const PeerInfo other_device{.device = "privateuseone", .gpu = "third"};
  EXPECT_TRUE(each_has_a_gpu({first, second}));
  EXPECT_FALSE(each_has_a_gpu({first, first}));
  EXPECT_FALSE(each_has_a_gpu({first, without_name}));
  EXPECT_FALSE(each_has_a_gpu({first, other_device}));
  EXPECT_FALSE(each_has_a_gpu({cpu, second}));
  EXPECT_TRUE(becomes_nccl("auto", {first, second}));
  EXPECT_FALSE(becomes_nccl("auto", {first, first}));
  EXPECT_FALSE(becomes_nccl("auto", {first})) << "a group of one";
  EXPECT_TRUE(becomes_nccl("nccl", {cpu}));
  EXPECT_FALSE(becomes_nccl("gloo", {first, second}));
  EXPECT_THAT(shared_devices({first, second, cpu, cpu}), IsEmpty());
}

TEST(PeerInfos, MayLackAnAddressForGloo) {
  Membership membership{.size = 2, .world_ranks = {0, 1}};
  membership.peers = {{.backend = "gloo", .host = "a"}, {.backend = "gloo", .host = "b"}};
  membership.options.backend = "gloo";
  membership.address_problem = "rank 1 has no address";
  EXPECT_EQ(message_of<ConfigError>([&] { choose_backend(membership); }),
            "backend gloo: rank 1 has no address");
  membership.peers[1].host = "a";
  membership.options.backend = "hierarchical";
  EXPECT_THAT(message_of<ConfigError>([&] { choose_backend(membership); }),
              HasSubstr("backend hierarchical is for several hosts, all ranks are on one"));
}

TEST(Memberships, AreAtFirstThoseOfAGroupOfOne) {
  const Membership membership{};
  EXPECT_EQ(membership.rank, 0);
  EXPECT_EQ(membership.size, 1);
  EXPECT_EQ(membership.local_rank, 0);
  EXPECT_EQ(membership.local_size, 1);
  EXPECT_FALSE(membership.exchange.has_value());
  EXPECT_FALSE(membership.foreign_store);
  EXPECT_EQ(membership.color, 0);
  EXPECT_EQ(LocalPlace{}.rank, 0);
  EXPECT_EQ(LocalPlace{}.size, 1);
  EXPECT_THROW(local_place({{.host = "a"}}, 1), InternalError) << "it is on no host";
}

TEST(Memberships, NameRanksByTheirPlaceInTheFirstGroup) {
  const Membership membership{.rank = 1, .size = 3, .world_ranks = {5, 3, 9}};
  EXPECT_EQ(membership.world_rank(), 3);
  EXPECT_THAT(membership.named({2, 0}), ElementsAre(9, 5));
  EXPECT_THAT(membership.named({}), IsEmpty());
}

// Rank `rank` of as many ranks as there are hosts named, before it has a backend.
Membership member_of(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                     const std::vector<std::string>& hosts, const std::string& backend) {
  Membership membership;
  membership.name = "world";
  membership.rank = rank;
  membership.size = static_cast<int>(hosts.size());
  for (int each = 0; each < membership.size; ++each) {
    membership.world_ranks.push_back(each);
    membership.peers.push_back({.backend = backend,
                                .device = "cpu",
                                .host = hosts[static_cast<std::size_t>(each)],
                                .world_rank = each});
  }
  membership.exchange.emplace(store, rank, membership.size, std::chrono::seconds(30));
  membership.own_address = "127.0.0.1";
  membership.foreign_store = true;
  membership.options.backend = backend;
  membership.options.timeout = std::chrono::seconds(30);
  membership.progress = std::make_shared<Progress>();
  return membership;
}

// What a rank says that cannot open the memory of its host's first rank.
void refuse_memory(TextExchange& exchange) {
  exchange.exchange("shared-memory announcement", "");
  exchange.exchange("shared-memory vote", "nthere is none");
}

struct Refusal {
  const char* backend;
  std::vector<std::string> hosts;
  const char* told;                   // in the log, or in the error of each rank but rank 1
  std::vector<int> ranks_that_log{};  // none: the choice fails
};

// Rank 1 shares a host with rank 0, but not its memory.
TEST(ChosenBackends, AreGlooWhereMemoryCannotBeShared) {
  const Refusal refusals[] = {
      {"auto",
       {"a", "a"},
       "info: shared memory cannot be used (rank 1: there is none), using Gloo",
       {0}},
      {"auto",
       {"a", "a", "b"},
       "info: shared memory inside the hosts cannot be used (rank 1: there is none), using Gloo "
       "between all ranks",
       {0, 2}},
      {"shm",
       {"a", "a"},
       "backend shm needs all ranks on one host, by one user; rank 1: there is none; choose gloo"},
      {"hierarchical",
       {"a", "a", "b"},
       "backend hierarchical needs shared memory inside each host; rank 1: there is none; choose "
       "gloo"}};
  const bool tells = log_enabled(LogLevel::kInfo);
  set_log_level(LogLevel::kInfo);
  for (const Refusal& each : refusals) {
    SCOPED_TRACE(each.told);
    const bool fails = each.ranks_that_log.empty();
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const testing_support::CapturedLog log;
    const auto errors =
        testing_support::run_threads(static_cast<int>(each.hosts.size()), [&](int rank) {
          Membership membership = member_of(store, rank, each.hosts, each.backend);
          if (rank == 1) {
            if (each.hosts.size() == 2) {
              refuse_memory(*membership.exchange);
            } else {
              TextExchange host(c10::make_intrusive<c10d::PrefixStore>("host/0", store), 1, 2,
                                std::chrono::seconds(30));
              refuse_memory(host);
              membership.exchange->exchange("shared memory inside the hosts",
                                            "rank 1: there is none");
            }
            if (fails) return;
            membership.options.backend = "gloo";
          }
          const auto backend = choose_backend(membership);
          if (backend->name() != "gloo") throw Error(backend->name());
          membership.exchange->exchange("end of the test", "");
        });
    std::ptrdiff_t lines = 0;
    for (const std::string& line : log.lines()) lines += line.ends_with(each.told) ? 1 : 0;
    EXPECT_EQ(lines, std::ssize(each.ranks_that_log));
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_EQ(errors[rank], fails && rank != 1 ? each.told : "") << "on rank " << rank;
    }
  }
  if (!tells) set_log_level(LogLevel::kWarning);
}

}  // namespace
}  // namespace lockstep::comm
