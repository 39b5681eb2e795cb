// The parts of a store: the limit of its memory, its table, the answers that clients have not taken
// yet, and the proof of the secret.
#include <lockstep/comm/store/outbox.h>
#include <lockstep/comm/store/table.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/proof.h>
#include <lockstep/comm/store/protocol.h>
#include <lockstep/comm/store/server.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <tests/comm/served_store.h>
#include <tests/support/captured_log.h>

namespace lockstep::tcp_store {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// --- Memory --------------------------------------------------------------------------------------

TEST(StoreBudget, CountsShares) {
  Budget budget(100);
  Share first(budget, 60);
  EXPECT_EQ(budget.held(), 60U);
  EXPECT_THROW(Share(budget, 41), OverBudget);
  EXPECT_EQ(budget.held(), 60U);
  {
    Share second(budget, 40);
    EXPECT_EQ(budget.held(), 100U);
    EXPECT_THROW(second.resize(41), OverBudget);
    EXPECT_EQ(second.bytes(), 40U);
    second.resize(10);
    EXPECT_EQ(budget.held(), 70U);
    second.resize(40);
    const Share moved(std::move(second));
    EXPECT_EQ(moved.bytes(), 40U);
    EXPECT_EQ(budget.held(), 100U);
  }
  EXPECT_EQ(budget.held(), 60U);
}

TEST(StoreBudget, CountsTextsAsLongAsAnythingRefersToThem) {
  constexpr std::size_t kOverhead = 200;
  Budget budget(10'000);
  auto text = std::make_shared<HeldText>(budget, std::string(1000, 'x'));
  EXPECT_GE(budget.held(), 1000U);
  EXPECT_LT(budget.held(), 1000U + kOverhead);
  std::shared_ptr<const HeldText> other = text;
  text->append(std::string(1000, 'y'));
  EXPECT_EQ(other->text(), std::string(1000, 'x') + std::string(1000, 'y'));
  const std::size_t held = budget.held();
  EXPECT_GE(held, 2000U);
  EXPECT_EQ(held, text->text().capacity() + sizeof(HeldText)) << "not what it might have taken";
  EXPECT_THROW(text->append(std::string(3000, 'z')), OverBudget);  // might take twice 5,000
  EXPECT_EQ(text->text().size(), 2000U);
  EXPECT_EQ(budget.held(), held);
  text.reset();
  EXPECT_EQ(budget.held(), held);
  other.reset();
  EXPECT_EQ(budget.held(), 0U);
}

// --- The table -----------------------------------------------------------------------------------

class StoreTable : public ::testing::Test {
 protected:
  std::string text_of(const std::string& key) const {
    const Table::Value value = table_.find(key);
    return value ? value->text() : "missing";
  }

  Budget budget_{std::size_t{1} << 20};
  std::vector<int> ready_;
  Table table_{budget_, [this](int waiter) { ready_.push_back(waiter); }};
};

TEST_F(StoreTable, GivesBackTheMemoryOfWhatIsReplacedOrRemoved) {
  table_.set("a", std::string(5000, 'x'));
  EXPECT_GE(budget_.held(), 5000U);
  table_.set("a", "y");
  EXPECT_LT(budget_.held(), 1000U);
  EXPECT_GT(budget_.held(), 100U) << "a key takes memory, too";
  EXPECT_EQ(table_.size(), 1U);
  EXPECT_TRUE(table_.remove("a"));
  EXPECT_FALSE(table_.remove("a"));
  EXPECT_EQ(budget_.held(), 0U);
  table_.append("a", std::string(1000, 'x'));
  table_.append("a", std::string(1000, 'x'));
  table_.compare_set("b", "", "1");
  table_.add("c", 1);
  EXPECT_EQ(table_.size(), 3U);
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(table_.remove(key));
  EXPECT_EQ(budget_.held(), 0U);
}

// An answer that is being sent must not change.
TEST_F(StoreTable, GivesValuesThatStay) {
  table_.append("k", "x");
  Table::Value before = table_.find("k");
  table_.append("k", "y");
  EXPECT_EQ(before->text(), "x");
  EXPECT_EQ(text_of("k"), "xy");
  before.reset();
  table_.append("k", "z");
  EXPECT_EQ(text_of("k"), "xyz");
  before = table_.find("k");
  table_.set("k", "new");
  EXPECT_EQ(before->text(), "xyz");
  EXPECT_EQ(text_of("k"), "new");
  EXPECT_TRUE(table_.remove("k"));
  EXPECT_EQ(before->text(), "xyz");
  EXPECT_EQ(text_of("k"), "missing");
}

TEST_F(StoreTable, ComparesBeforeItSets) {
  EXPECT_EQ(table_.compare_set("k", "", "a")->text(), "a");
  EXPECT_EQ(table_.compare_set("k", "", "b")->text(), "a");
  EXPECT_EQ(text_of("k"), "a");
  EXPECT_EQ(table_.compare_set("k", "a", "b")->text(), "b");
  EXPECT_EQ(text_of("k"), "b");
  EXPECT_EQ(table_.compare_set("none", "x", "y")->text(), "x");
  EXPECT_EQ(text_of("none"), "missing");
  table_.set("empty", "");
  EXPECT_EQ(table_.compare_set("empty", "", "c")->text(), "c");
}

TEST_F(StoreTable, AddsToWholeNumbersOnly) {
  EXPECT_EQ(table_.add("n", 5), 5);
  EXPECT_EQ(table_.add("n", -7), -2);
  EXPECT_EQ(text_of("n"), "-2");
  for (const char* other : {"", "x", "1x", " 1", "1.5", "9223372036854775808"}) {
    table_.set("n", other);
    EXPECT_EQ(table_.add("n", 1), std::nullopt) << other;
    EXPECT_EQ(text_of("n"), other);
  }
  table_.set("n", "9223372036854775807");
  EXPECT_EQ(table_.add("n", 1), std::nullopt);
  EXPECT_EQ(text_of("n"), "9223372036854775807");
  EXPECT_EQ(table_.add("n", -1), 9223372036854775806);
}

TEST_F(StoreTable, WakesEachWaiterAfterItsLastKey) {
  table_.set("here", "");
  EXPECT_FALSE(table_.wait(1, {}));
  EXPECT_FALSE(table_.wait(1, {"here", "here"}));
  EXPECT_TRUE(table_.wait(1, {"here", "a", "b", "a"}));
  EXPECT_TRUE(table_.wait(2, {"b"}));
  EXPECT_TRUE(table_.wait(3, {"c", "b"}));
  table_.set("a", "");
  table_.set("other", "");
  EXPECT_THAT(ready_, IsEmpty());
  table_.set("b", "");
  EXPECT_THAT(ready_, UnorderedElementsAre(1, 2));
  table_.set("a", "again");
  table_.set("b", "again");
  EXPECT_EQ(ready_.size(), 2U);
  table_.set("c", "");
  EXPECT_EQ(ready_.back(), 3);
  for (const char* key : {"here", "a", "b", "c", "other"}) EXPECT_TRUE(table_.remove(key));
  EXPECT_EQ(budget_.held(), 0U);
}

TEST_F(StoreTable, WakesByEveryKindOfWrite) {
  const std::function<void()> writes[] = {
      [&] { table_.set("k", ""); }, [&] { table_.append("k", "x"); }, [&] { table_.add("k", 1); },
      [&] { table_.compare_set("k", "", "x"); }};
  for (const auto& write : writes) {
    EXPECT_TRUE(table_.wait(7, {"k"}));
    table_.compare_set("k", "unlike", "x");  // sets nothing
    EXPECT_THAT(ready_, IsEmpty());
    write();
    EXPECT_THAT(ready_, ElementsAre(7));
    ready_.clear();
    table_.remove("k");
  }
}

TEST_F(StoreTable, ForgetsWaitsThatEnd) {
  EXPECT_TRUE(table_.wait(1, {"a"}));
  EXPECT_TRUE(table_.wait(1, {"b"}));  // takes the place of the first wait
  EXPECT_TRUE(table_.wait(2, {"a", "b"}));
  EXPECT_TRUE(table_.wait(3, {"b"}));
  table_.cancel(2);
  table_.cancel(2);
  table_.cancel(4);
  table_.set("a", "");
  EXPECT_THAT(ready_, IsEmpty());
  table_.set("b", "");
  EXPECT_THAT(ready_, UnorderedElementsAre(1, 3));
  EXPECT_TRUE(table_.remove("a") && table_.remove("b"));
  EXPECT_EQ(budget_.held(), 0U);
}

TEST(StoreTableLimit, LeavesTheTableAsItWas) {
  Budget budget(1000);
  std::vector<int> ready;
  Table table(budget, [&](int waiter) { ready.push_back(waiter); });
  std::vector<std::string> keys;
  for (char letter = 'a'; letter < 'k'; ++letter) keys.emplace_back(100, letter);
  EXPECT_THROW(table.wait(1, keys), OverBudget);
  EXPECT_EQ(budget.held(), 0U);
  table.set(keys[0], "v");
  EXPECT_THAT(ready, IsEmpty());
  const std::size_t held = budget.held();
  EXPECT_THROW(table.set(keys[0], std::string(2000, 'x')), OverBudget);
  EXPECT_THROW(table.set(keys[1], std::string(2000, 'x')), OverBudget);
  EXPECT_THROW(table.append(keys[0], std::string(2000, 'x')), OverBudget);
  EXPECT_THROW(table.compare_set(keys[0], "v", std::string(2000, 'x')), OverBudget);
  EXPECT_EQ(budget.held(), held);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.find(keys[0])->text(), "v");
}

// --- Answers that wait ---------------------------------------------------------------------------

class StoreOutbox : public ::testing::Test {
 protected:
  StoreOutbox() {
    std::array<int, 2> both{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    writer_ = both[0];
    reader_ = both[1];
    const int few = 4096;
    setsockopt(writer_, SOL_SOCKET, SO_SNDBUF, &few, sizeof(few));
  }
  ~StoreOutbox() override {
    close(writer_);
    if (reader_ >= 0) close(reader_);
  }

  // What has arrived.
  std::string arrived() const {
    std::string bytes;
    std::array<char, 4096> buffer;
    for (;;) {
      const ssize_t count = recv(reader_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (count <= 0) return bytes;
      bytes.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  Table::Value value_of(std::string text) {
    return std::make_shared<HeldText>(budget_, std::move(text));
  }

  Budget budget_{std::size_t{16} << 20};
  Outbox out_{budget_};
  int writer_ = -1;
  int reader_ = -1;
};

// More pieces than one call sends, of all lengths, through a socket that takes little at a time.
TEST_F(StoreOutbox, SendsEverythingInOrder) {
  std::string expected;
  for (int i = 0; i < 600; ++i) {
    const std::string text = str("text ", i, ";");
    out_.add(std::string_view(text));
    expected += text;
    if (i % 3 == 0) {
      const std::string value(static_cast<std::size_t>(i * 37 % 5000),
                              static_cast<char>('a' + i % 26));
      out_.add(value_of(value));
      expected += value;
    }
  }
  EXPECT_GE(budget_.held(), expected.size());
  EXPECT_FALSE(out_.empty());
  std::string received;
  int refusals = 0;
  while (!out_.empty()) {
    const int error = out_.send_to(writer_);
    ASSERT_TRUE(error == 0 || error == EAGAIN) << error;
    EXPECT_EQ(error == 0, out_.empty());
    refusals += error == EAGAIN ? 1 : 0;
    received += arrived();
  }
  received += arrived();
  EXPECT_EQ(received, expected);
  EXPECT_GT(refusals, 3);
  EXPECT_EQ(budget_.held(), 0U);
  EXPECT_EQ(out_.send_to(writer_), 0) << "nothing is left";
  out_.add("more");
  EXPECT_EQ(out_.send_to(writer_), 0);
  EXPECT_EQ(arrived(), "more");
}

TEST_F(StoreOutbox, RefersToValuesAndCountsItsOwnBytes) {
  const Table::Value value = value_of(std::string(10'000, 'x'));
  const std::size_t before = budget_.held();
  for (int i = 0; i < 100; ++i) out_.add(value);
  EXPECT_LT(budget_.held(), before + 100 * 500);
  EXPECT_GT(budget_.held(), before);
  out_.clear();
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(budget_.held(), before);
  for (int i = 0; i < 1000; ++i) out_.add("ten bytes.");
  EXPECT_GE(budget_.held(), before + 10'000);
  EXPECT_LT(budget_.held(), before + 30'000);
  out_.clear();
  EXPECT_EQ(budget_.held(), before);
}

TEST_F(StoreOutbox, HoldsNoMoreThanItsBudget) {
  Budget small(1000);
  Outbox out(small);
  EXPECT_THROW(out.add(std::string_view(std::string(2000, 'x'))), OverBudget);
  out.clear();
  EXPECT_EQ(small.held(), 0U);
  const Table::Value value = value_of(std::string(1000, 'x'));
  const auto add_many = [&] {
    for (int i = 0; i < 100; ++i) out.add(value);
  };
  EXPECT_THROW(add_many(), OverBudget);
  out.clear();
  EXPECT_EQ(small.held(), 0U);
}

TEST_F(StoreOutbox, SaysThatNobodyReads) {
  close(std::exchange(reader_, -1));
  out_.add("lost");
  EXPECT_EQ(out_.send_to(writer_), EPIPE);
  EXPECT_FALSE(out_.empty());
}

// --- The proof of the secret ---------------------------------------------------------------------

TEST(StoreNumbers, AreFresh) {
  std::set<std::string> numbers;
  for (int i = 0; i < 100; ++i) {
    numbers.insert(fresh_number());
    EXPECT_EQ(numbers.begin()->size(), kNumberBytes);
  }
  EXPECT_EQ(numbers.size(), 100U);
}

TEST(StoreNumbers, GiveEachEndAProofOfItsOwn) {
  const Mac plain = [](const std::string& text) { return text; };
  const std::string a(kNumberBytes, 'a');
  const std::string b(kNumberBytes, 'b');
  const std::set<std::string> proofs{client_proof(plain, a, b), client_proof(plain, b, a),
                                     store_proof(plain, a, b), store_proof(plain, b, a)};
  EXPECT_EQ(proofs.size(), 4U);
  for (const std::string& proof : proofs) {
    EXPECT_THAT(proof, HasSubstr(a));
    EXPECT_THAT(proof, HasSubstr(b));
  }
}

TEST(StoreNumbers, AreComparedCompletely) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "xbc", "axc", "cba", "bac"}) {
    EXPECT_FALSE(equal_in_constant_time("abc", other)) << other;
    EXPECT_FALSE(equal_in_constant_time(other, "abc")) << other;
  }
  EXPECT_FALSE(equal_in_constant_time(std::string("a\0b", 3), std::string("a\0c", 3)));
  // Two differences do not cancel each other.
  EXPECT_FALSE(equal_in_constant_time(std::string("aa"), std::string("bb")));
}

// --- The server ----------------------------------------------------------------------------------

TEST(StoreServer, LimitsOnlyThoseWhoseSecretItCannotKnow) {
  const std::string large(std::size_t{1} << 20, 'x');
  const Mac mac = mac_of_key("secret");
  ServedStore proven({.mac = mac, .most_bytes = std::size_t{1} << 16});
  Connection member(proven.options(mac));
  member.set("k", large);
  EXPECT_EQ(member.get({"k"})[0].size(), large.size());
  ServedStore open({.most_bytes = std::size_t{1} << 16});
  Connection stranger(open.options());
  stranger.set("k", "small");
  EXPECT_THAT(stranger.get({"k"}), ElementsAre("small"));
  const auto set_large = [&] {
    stranger.set("k", large);
    stranger.check({"k"});
  };
  EXPECT_THROW(set_large(), std::system_error);
  EXPECT_THAT(Connection(open.options()).get({"k"}), ElementsAre("small"));
}

TEST(StoreServer, HasLimitsWithoutBeingAsked) {
  const ServerOptions options;
  EXPECT_FALSE(options.mac);
  EXPECT_EQ(options.most_bytes, 67'108'864U);
  EXPECT_EQ(options.most_strangers, 64U);
  EXPECT_EQ(options.time_to_prove.count(), 10'000);
}

TEST(StoreServer, DisconnectsWhoAddsToText) {
  ServedStore store;
  Connection other(store.options());
  other.set("n", "text");
  EXPECT_TRUE(other.check({"n"}));
  Connection client(store.options());
  EXPECT_THROW(client.add("n", 1), std::system_error);
  EXPECT_THAT(other.get({"n"}), ElementsAre("text"));
}

// The socket does not take all answers at once. The queries behind them are handled later.
TEST(StoreServer, AnswersEveryQueryOfAClientThatReadsLate) {
  constexpr std::size_t kTimes = 12;
  const std::string value(std::size_t{1} << 20, 'v');
  ServedStore store;
  Connection writer(store.options());
  writer.set("k", value);
  ASSERT_TRUE(writer.check({"k"}));
  std::string queries = Message(Query::kValidate).add(kMagic).bytes();
  for (std::size_t i = 0; i < kTimes; ++i) queries += Message(Query::kGet).add_text("k").bytes();
  queries += Message(Query::kAdd).add_text("n").add(std::int64_t{5}).bytes();
  queries += Message(Query::kPing).add(kMagic).bytes();
  const Descriptor socket(comm::connect_to_listener("127.0.0.1", store.port, seconds(30)));
  ASSERT_EQ(send(socket.get(), queries.data(), queries.size(), MSG_NOSIGNAL), std::ssize(queries));
  EXPECT_TRUE(writer.check({"k"}));
  const std::string one = Message().add_text(value).bytes();
  const std::string end = Message().add(std::int64_t{5}).add(kMagic).bytes();
  std::string received;
  std::vector<char> buffer(std::size_t{1} << 18);
  while (received.size() < kTimes * one.size() + end.size()) {
    pollfd polled{socket.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 30'000), 1) << received.size() << " bytes arrived";
    const ssize_t count = recv(socket.get(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(count, 0) << received.size() << " bytes arrived";
    received.append(buffer.data(), static_cast<std::size_t>(count));
  }
  for (std::size_t i = 0; i < kTimes; ++i) {
    EXPECT_EQ(received.compare(i * one.size(), one.size(), one), 0) << i;
  }
  EXPECT_EQ(received.substr(kTimes * one.size()), end);
}

// As long as a client leaves an answer in its socket, the queries behind it change nothing.
TEST(StoreServer, HandlesNothingMoreOfAClientThatDoesNotRead) {
  constexpr std::size_t kTimes = 48;
  const std::string value(std::size_t{1} << 20, 'v');
  ServedStore store;
  Connection other(store.options());
  other.set("k", value);
  ASSERT_TRUE(other.check({"k"}));
  const Descriptor socket(comm::connect_to_listener("127.0.0.1", store.port, seconds(30)));
  pollfd polled{socket.get(), POLLIN, 0};
  const std::string greeting =
      Message(Query::kValidate).add(kMagic).add(Query::kPing).add(kMagic).bytes();
  ASSERT_EQ(send(socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
            std::ssize(greeting));
  ASSERT_EQ(poll(&polled, 1, 30'000), 1) << "the ping is not answered";
  std::uint32_t magic = 0;
  ASSERT_EQ(recv(socket.get(), &magic, sizeof(magic), 0), ssize_t{sizeof(magic)});
  std::string queries;  // few enough that the store receives them together
  for (std::size_t i = 0; i < kTimes; ++i) queries += Message(Query::kGet).add_text("k").bytes();
  queries += Message(Query::kAdd).add_text("n").add(std::int64_t{5}).bytes();
  ASSERT_EQ(send(socket.get(), queries.data(), queries.size(), MSG_NOSIGNAL), std::ssize(queries));
  ASSERT_EQ(poll(&polled, 1, 30'000), 1) << "the first answer does not come";
  EXPECT_FALSE(other.check({"n"}));
  std::size_t left = kTimes * (sizeof(std::uint64_t) + value.size()) + sizeof(std::int64_t);
  std::vector<char> buffer(std::size_t{1} << 18);
  while (left > 0) {
    ASSERT_EQ(poll(&polled, 1, 30'000), 1) << left << " bytes are missing";
    const ssize_t count = recv(socket.get(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(count, 0) << left << " bytes are missing";
    left -= static_cast<std::size_t>(count);
  }
  EXPECT_THAT(other.get({"n"}), ElementsAre("5"));
}

// The key for which the client waited comes when nobody is there to be told.
TEST(StoreServer, ForgetsTheWaitOfAClientThatLeaves) {
  ServedStore store;
  Connection other(store.options());
  {
    const std::string queries = Message(Query::kValidate).add(kMagic).bytes() +
                                Message(Query::kPing).add(kMagic).bytes() +
                                Message(Query::kWait).add_texts({"k"}).bytes();
    const Descriptor socket(comm::connect_to_listener("127.0.0.1", store.port, seconds(30)));
    ASSERT_EQ(send(socket.get(), queries.data(), queries.size(), MSG_NOSIGNAL),
              std::ssize(queries));
    pollfd polled{socket.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 30'000), 1) << "the ping is not answered";
    EXPECT_FALSE(other.check({"k"}));  // by now the store has handled the wait
  }
  EXPECT_FALSE(other.check({"k"}));  // by now the store has noticed that the client left
  other.set("k", "v");
  EXPECT_THAT(other.get({"k"}), ElementsAre("v"));
  EXPECT_TRUE(Connection(store.options()).check({"k"}));
}

TEST(StoreServer, WarnsOnceOfAnotherSecret) {
  const testing_support::CapturedLog log;
  ServedStore store({.mac = mac_of_key("secret")});
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_THROW(Connection{store.options(mac_of_key("other"))}, CommError);
  }
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("a process at 127.0.0.1 with another "
                                                 "LOCKSTEP_SECRET was refused by the store")));
}

}  // namespace
}  // namespace lockstep::tcp_store
