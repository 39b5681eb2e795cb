// The secret of a job: which ranks may join, and what an outsider sees of the store.
#include <lockstep/comm/rendezvous/secret.h>

#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/comm/rendezvous/sealing.h>
#include <lockstep/comm/rendezvous/secret_store.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/tcp_store.h>

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing_support;

constexpr const char* kSecret = "a secret of more than sixteen characters";

// The ranks' errors when a job meets with these secrets (null: no secret).
std::vector<std::string> meet(const std::vector<const char*>& secrets,
                              const std::vector<int>& world_ranks = {}) {
  const int size = static_cast<int>(secrets.size());
  auto store = c10::make_intrusive<c10d::HashStore>();
  return run_threads(size, [&](int rank) {
    const char* text = secrets[static_cast<std::size_t>(rank)];
    const auto secret = text == nullptr ? std::nullopt : std::optional<std::string>(text);
    TextExchange exchange(store, rank, size, std::chrono::seconds(10), world_ranks);
    SecretProof own(secret, rank, exchange.world_rank());
    const auto greetings = exchange.exchange("roll call", own.greeting());
    const auto proof = own.proof(greetings, exchange.world_ranks());
    if (proof.has_value() != secret.has_value()) {
      throw Error("a proof without a secret, or the reverse");
    }
    if (proof) own.key(exchange.exchange("proof of the secret", *proof));
  });
}

TEST(Secret, IsKnownToAllOrRefused) {
  EXPECT_EQ(meet({kSecret, kSecret, kSecret}), no_errors(3));
  EXPECT_EQ(meet({nullptr, nullptr}), no_errors(2));
  EXPECT_THAT(
      meet({kSecret, "another secret of some length"}),
      Each(std::string(
          "ranks 0 and 1 have different secrets (LOCKSTEP_SECRET); give all ranks the same")));
  EXPECT_THAT(
      meet({kSecret, nullptr, kSecret}),
      Each(std::string(
          "rank 0 was started with LOCKSTEP_SECRET, rank 1 without; give all ranks the same")));
  EXPECT_THAT(
      meet({nullptr, kSecret}),
      Each(std::string(
          "rank 1 was started with LOCKSTEP_SECRET, rank 0 without; give all ranks the same")));
}

TEST(Secret, OfAnotherIsNamedByTheRankOfTheWorld) {
  EXPECT_THAT(meet({kSecret, nullptr}, {4, 7}),
              Each(HasSubstr("rank 4 was started with LOCKSTEP_SECRET, rank 7 without")));
  EXPECT_THAT(meet({kSecret, "another secret of some length"}, {4, 7}),
              Each(HasSubstr("ranks 4 and 7 have different secrets")));
}

TEST(Secret, OfFewCharactersIsRefused) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_SECRET", "12345");
  EXPECT_THAT(testing_support::message_of<ConfigError>(job_secret),
              HasSubstr("LOCKSTEP_SECRET has 5 characters, expected at least 16; make one with: "
                        "openssl rand -hex 32"));
  environment.set("LOCKSTEP_SECRET", std::string(15, 'x'));
  EXPECT_THROW(job_secret(), ConfigError);
  environment.set("LOCKSTEP_SECRET", std::string(16, 'x'));
  EXPECT_EQ(job_secret(), std::string(16, 'x'));
  environment.set("LOCKSTEP_SECRET", std::nullopt);
  EXPECT_EQ(job_secret(), std::nullopt);
  EXPECT_FALSE(mac_of(std::nullopt));
  EXPECT_EQ(mac_of(kSecret)("text"), hmac_sha256(kSecret, "text"));
}

// The key is that of the roll call which the rank has signed.
TEST(Secret, GivesNoKeyBeforeItsProof) {
  SecretProof first(kSecret, 0, 0);
  SecretProof second(kSecret, 1, 1);
  EXPECT_THROW(first.key({"", ""}), InternalError);
  const std::vector<std::string> greetings{first.greeting(), second.greeting()};
  const std::string proof_of_first = *first.proof(greetings, {0, 1});
  const std::string proof_of_second = *second.proof(greetings, {0, 1});
  EXPECT_THROW(first.key({proof_of_first}), InternalError);
  EXPECT_THROW(first.key({proof_of_second, proof_of_first}), CommError);
  EXPECT_THROW(first.key({proof_of_first, ""}), CommError);
  EXPECT_EQ(first.key({proof_of_first, proof_of_second}).size(), 32U);
  EXPECT_EQ(first.key({proof_of_first, proof_of_second}),
            second.key({proof_of_first, proof_of_second}));
}

// RFC 4231, test case 2.
TEST(Secret, IsProvenByHmacSha256) {
  std::string hex;
  for (const char byte : hmac_sha256("Jefe", "what do ya want for nothing?")) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    hex += digits;
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

std::string hex_of(const Sealing::Bytes& bytes) {
  std::string hex;
  for (const std::uint8_t byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    hex += digits;
  }
  return hex;
}

std::string key_of_all_bytes() {
  std::string key(Sealing::kKeyBytes, '\0');
  std::iota(key.begin(), key.end(), '\0');
  return key;
}

// Reference output of AESSIV in Python's cryptography package, for a zero byte followed by the
// content. The associated data is a slash followed by the name.
TEST(Sealing, IsAesSiv) {
  const Sealing sealing(key_of_all_bytes());
  const Sealing::Bytes content{'c', 'o', 'n', 't', 'e', 'n', 't'};
  EXPECT_EQ(hex_of(sealing.seal("name", content)),
            "ddba2ecdf00bb1a8e180ec1b7066350558e62fc49770e21e");
  EXPECT_EQ(hex_of(sealing.seal("", {})), "ef9a653c1cd58e42a3dd011b6c09eb6e4f");
  EXPECT_EQ(sealing.open("name", sealing.seal("name", content)), content);
  EXPECT_EQ(sealing.open("", sealing.seal("", {})), Sealing::Bytes{});
}

TEST(Sealing, IsOpenedOnlyByItsKeyAndItsName) {
  const Sealing sealing(key_of_all_bytes());
  const Sealing::Bytes sealed = sealing.seal("name", {1, 2, 3});
  EXPECT_EQ(sealing.open("names", sealed), std::nullopt);
  EXPECT_EQ(Sealing(std::string(Sealing::kKeyBytes, 'k')).open("name", sealed), std::nullopt);
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    Sealing::Bytes changed = sealed;
    changed[i] ^= 1;
    EXPECT_EQ(sealing.open("name", changed), std::nullopt) << "byte " << i;
  }
  EXPECT_EQ(sealing.open("name", {}), std::nullopt);
  EXPECT_EQ(sealing.open("name", Sealing::Bytes(sealed.begin(), sealed.begin() + 16)),
            std::nullopt);
  EXPECT_THROW(Sealing("short"), std::exception);
}

TEST(SecretStore, GivesBackWhatWasPutAndHidesIt) {
  auto plain = c10::make_intrusive<c10d::HashStore>();
  SecretStore store(plain, std::string(32, 'k'));
  store.set("name", "content");
  EXPECT_EQ(store.get_to_str("name"), "content");
  EXPECT_TRUE(store.check({"name"}));
  EXPECT_FALSE(store.check({"other"}));
  EXPECT_EQ(store.compareSet("name", "content", "later"), "later");
  EXPECT_EQ(store.compareSet("name", "wrong", "never"), "later");
  EXPECT_EQ(store.compareSet("new", "", "first"), "first");
  EXPECT_EQ(store.compareSet("new", "", "second"), "first");
  EXPECT_EQ(store.add("count", 2), 2);
  EXPECT_EQ(store.add("count", 3), 5);
  store.multiSet({"a", "b"}, {{1}, {}});
  EXPECT_EQ(store.multiGet({"b", "a"}), (std::vector<SecretStore::Bytes>{{}, {1}}));
  EXPECT_EQ(store.clone()->get_to_str("name"), "later");
  EXPECT_TRUE(store.deleteKey("name"));
  EXPECT_FALSE(store.check({"name"}));
  for (const auto& key : plain->listKeys()) {
    EXPECT_THAT(key, Not(HasSubstr("new")));
    EXPECT_THAT(plain->get_to_str(key), Not(HasSubstr("first")));
  }
}

TEST(SecretStore, RefusesWhatAStrangerWrote) {
  auto plain = c10::make_intrusive<c10d::HashStore>();
  SecretStore store(plain, std::string(32, 'k'));
  store.set("a", "one");
  store.set("b", "two");
  const auto keys = plain->listKeys();
  ASSERT_EQ(keys.size(), 2U);
  // Contents of another name, changed contents, and made-up contents.
  const auto first = plain->get(keys[0]);
  auto changed = first;
  changed.back() ^= 1;
  for (const auto& forged :
       {plain->get(keys[1]), changed, SecretStore::Bytes{}, SecretStore::Bytes(20)}) {
    plain->set(keys[0], forged);
    const auto read_both = [&] {
      store.get("a");
      store.get("b");
    };
    EXPECT_THAT(testing_support::message_of<CommError>(read_both),
                HasSubstr("does not know LOCKSTEP_SECRET"));
  }
  SecretStore stranger(plain, std::string(32, 'x'));
  plain->set(keys[0], first);
  EXPECT_FALSE(stranger.check({"a"}));
}

// Anyone who can reach the port can read another rank's proof in the store.
TEST(Secret, IsNotProvenByTheProofOfAnotherRank) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_SECRET", kSecret);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    if (rank == 0) {
      call_the_roll(store, 0, 2, std::chrono::seconds(20), 0);
      throw Error("the stranger is in");
    }
    TextExchange stranger(store, 1, 2, std::chrono::seconds(20));
    stranger.store().compareSet("world_size", "", "2");
    stranger.store().add("rank/1", 1);
    stranger.exchange("roll call", "1 " + std::string(32, 'n'));
    stranger.exchange("proof of the secret", stranger.store().get_to_str("proof of the secret/0"));
  });
  EXPECT_EQ(errors[0],
            "ranks 0 and 1 have different secrets (LOCKSTEP_SECRET); give all ranks the same");
  EXPECT_EQ(errors[1], "");
}

class SecretGroups : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, SecretGroups, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(SecretGroups, CommunicateOverASealedStore) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_SECRET", kSecret);
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    auto world =
        join_store(store, rank, 2, {.backend = GetParam(), .timeout = std::chrono::seconds(30)});
    auto tensor = torch::ones({10});
    world.all_reduce(tensor);
    auto child = *world.split(0);
    child.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<float>(), 4);
    if (rank == 0) {
      for (const auto& key : store->listKeys()) EXPECT_THAT(key, Not(HasSubstr("group")));
    }
    world.monitored_barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Other machines can reach the address, and the port authenticates nobody.
TEST(Secret, IsDemandedWhereStrangersReachThePort) {
  testing_support::ScopedEnvironment variables;
  variables.set("LOCKSTEP_SECRET", std::nullopt);
  const int fd = listen_on("127.0.0.1", 0);
  for (const int rank : {0, 1}) {
    auto environment = environment_of(rank, 2, fd);
    environment.master_addr = "0.0.0.0";
    const auto message = testing_support::message_of<ConfigError>(
        [&] { rendezvous(environment, std::chrono::seconds(10)); });
    EXPECT_THAT(message, HasSubstr(lockstep::str("0.0.0.0:", bound_port(fd), " could join")));
    EXPECT_THAT(message, HasSubstr("with the same LOCKSTEP_SECRET in their environment"));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  close(fd);
}

TEST(Secret, IsEnoughWhereStrangersReachThePort) {
  testing_support::ScopedEnvironment variables;
  variables.set("LOCKSTEP_SECRET", kSecret);
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_threads(2, [&](int rank) {
    auto environment = environment_of(rank, 2, fd);
    environment.master_addr = "0.0.0.0";  // reaches the socket on loopback
    rendezvous(environment, std::chrono::seconds(20));
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The launcher, torchrun here, decides who can reach its store.
TEST(Secret, IsMissedInTheStoreOfALauncher) {
  testing_support::ScopedEnvironment variables;
  variables.set("LOCKSTEP_SECRET", std::nullopt);
  const CapturedLog log;
  const int fd = listen_on("127.0.0.1", 0);
  const auto store = testing_support::tcp_store(0, fd);
  auto environment = environment_of(0, 2, fd);
  environment.master_addr = "0.0.0.0";
  environment.agent_store = true;
  environment.listen_fd.reset();
  EXPECT_THROW(rendezvous(environment, std::chrono::milliseconds(100)), TimeoutError);
  EXPECT_THAT(log.lines(),
              ::testing::Contains(AllOf(HasSubstr("warning: "), HasSubstr("could join this job"))));
  const std::size_t lines = log.lines().size();
  environment.rank = environment.local_rank = 1;
  environment.restart_count = 1;
  EXPECT_THROW(rendezvous(environment, std::chrono::milliseconds(100)), TimeoutError);
  EXPECT_EQ(log.lines().size(), lines) << "rank 0 says it for all";
}

// With a secret, the exchange after the roll call is another one, over a sealed store.
TEST(RollCall, KeepsNamesAndChecksWithAndWithoutASecret) {
  for (const char* secret : {"", kSecret}) {
    testing_support::ScopedEnvironment environment;
    environment.set("LOCKSTEP_SECRET",
                    *secret == '\0' ? std::nullopt : std::optional<std::string>(secret));
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto errors = run_threads(2, [&](int rank) {
      auto exchange = call_the_roll(store, rank, 2, std::chrono::seconds(10), 7 - rank, [] {});
      EXPECT_EQ(exchange.world_ranks(), (std::vector<int>{7, 6}));
      EXPECT_TRUE(exchange.meanwhile());
      EXPECT_EQ(exchange.exchange("texts", lockstep::str(rank)),
                (std::vector<std::string>{"0", "1"}));
      if (rank == 1) return;
      EXPECT_EQ(testing_support::message_of<TimeoutError>(
                    [&] { exchange.exchange("more", "", {}, std::chrono::milliseconds(50)); }),
                "rank 7 waited 0.05 s for rank 6 of 2 in the more");
    });
    EXPECT_EQ(errors, no_errors(2)) << secret;
  }
}

TEST(RollCall, RefusesARankThatContradictsTheOthers) {
  const auto refusal = [](const c10::intrusive_ptr<c10d::HashStore>& store) {
    return testing_support::message_of<CommError>(
        [&] { call_the_roll(store, 1, 3, std::chrono::seconds(10), 5); });
  };
  const auto other_size = c10::make_intrusive<c10d::HashStore>();
  other_size->set("world_size", store_bytes("2"));
  EXPECT_EQ(refusal(other_size),
            "rank 5 was started with a world of 3 ranks, the others with 2 (WORLD_SIZE)");
  const auto twin = c10::make_intrusive<c10d::HashStore>();
  twin->add("rank/1", 1);
  EXPECT_EQ(refusal(twin), "rank 5 is there twice: two processes have the same RANK");
  EXPECT_TRUE(twin->check({"refused"})) << "the others hear of it";
}

TEST(RollCall, NamesTheRanksOfTheWorld) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    const auto exchange = call_the_roll(store, rank, 2, std::chrono::seconds(10), 7 - rank);
    EXPECT_EQ(exchange.world_ranks(), (std::vector<int>{7, 6}));
  });
  EXPECT_EQ(errors, no_errors(2));
  auto empty = c10::make_intrusive<c10d::HashStore>();
  const auto message = testing_support::message_of<TimeoutError>(
      [&] { call_the_roll(empty, 0, 2, std::chrono::milliseconds(100), 7); });
  EXPECT_EQ(message, "rank 7 waited 0.1 s for the group's own rank 1 of 2 in the roll call");
}

}  // namespace
}  // namespace lockstep::comm
