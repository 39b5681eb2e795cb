// The words with which operations over Gloo end: at a deadline, after a failure of the library, and
// when a peer has left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/call/message_tag.h>
#include <lockstep/comm/diagnostics/watchdog_state.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo/told_library.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using testing::StartsWith;
using testing_support::message_of;
using testing_support::ToldCaller;

// Rank 0, which the world calls rank 4, and its peer, rank 6, whose status it has read.
struct NamedPair {
  explicit NamedPair(const watching::Status& status) {
    caller.store->set("status/1", store_bytes(status.to_text()));
    Watchdog& watchdog = *caller.caller.backend->watchdog();
    const Deadline deadline(std::chrono::seconds(10));
    while (watchdog.whereabouts().find(status.words) == std::string::npos && !deadline.expired()) {
      watchdog.hurry();
      watchdog.wait_for_news(milliseconds(100));
    }
  }
  std::shared_ptr<Work> receive(std::optional<int> source, MessageTag tag = 0) {
    return caller.caller.backend->recv(torch::ones({4}), source, tag);
  }

  ToldCaller caller{{4, 6}};
};

const watching::Status kComputes{.beat = 7, .number = 5, .words = "computes"};

struct LateCall {
  const char* name;
  std::function<std::shared_ptr<Work>(NamedPair&)> start;
  const char* text;
};

// No rank is behind and none is silent. A message can only lack its peer's part.
TEST(GlooReasons, OfADeadlineNameWhoseMessageIsMissing) {
  const LateCall calls[] = {
      {"a message", [](NamedPair& pair) { return pair.receive(1); },
       "rank 4 waited 0.02 s in recv[float32, 4, from rank 1] over gloo for rank 6; rank 6 "
       "computes"},
      {"a message of a collective",
       [](NamedPair& pair) { return pair.receive(1, MessageTag::of_collective(3, 7)); },
       "rank 4 waited 0.02 s in recv[float32, 4, from rank 1] (operation 3) over gloo for rank 6; "
       "rank 6 computes"},
      {"a message from any rank", [](NamedPair& pair) { return pair.receive(std::nullopt); },
       "rank 4 waited 0.02 s in recv[float32, 4, from any rank] over gloo; rank 6 computes"},
      {"a collective", [](NamedPair& pair) { return pair.caller.start_sum(torch::ones({4})); },
       "rank 4 waited 0.02 s in all_reduce[float32, 4] (operation 0) over gloo, which all ranks "
       "have called; rank 6 computes"}};
  for (const LateCall& call : calls) {
    SCOPED_TRACE(call.name);
    NamedPair pair(kComputes);
    const auto work = call.start(pair);
    const std::string text = message_of<TimeoutError>([&] { work->wait(milliseconds(20)); });
    EXPECT_THAT(text, StartsWith(call.text));
    EXPECT_EQ(message_of<TimeoutError>([&] { pair.caller.caller.backend->check(); }), text)
        << "the group has ended";
    if (pair.caller.library->sum) pair.caller.library->sum->end();  // or its group waits for it
  }
}

// The reason of a rank that ends the group would arrive a moment after its connections are closed.
TEST(GlooReasons, OfAFailureNameThePeerThatHasLeft) {
  const watching::Status left{.beat = 7, .number = 5, .left = true, .words = "has computed"};
  for (const bool is_message : {true, false}) {
    NamedPair pair(left);
    const auto work = is_message ? pair.receive(1) : pair.caller.start_sum(torch::ones({4}));
    if (is_message) {
      pair.caller.library->message->fails = true;
    } else {
      pair.caller.library->sum->end(std::make_exception_ptr(
          std::runtime_error("[/build/gloo/pair.cc:534] Connection closed by peer")));
    }
    EXPECT_EQ(
        message_of<CommError>([&] { work->wait(); }),
        str("rank 6 left the group while rank 4 was in ",
            is_message ? "recv[float32, 4, from rank 1]" : "all_reduce[float32, 4] (operation 0)"));
  }
}

// A store without room for another key.
class FullStore final : public c10d::HashStore {
 public:
  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string&, const std::vector<std::uint8_t>&) override { refuse(); }
  std::vector<std::uint8_t> compareSet(const std::string&, const std::vector<std::uint8_t>&,
                                       const std::vector<std::uint8_t>&) override {
    refuse();
    return {};
  }
  bool check(const std::vector<std::string>&) override {
    refuse();
    return false;
  }

 private:
  static void refuse() { throw Error("no room for another key"); }
};

// These reasons are given once the search for a better one has ended, so the cases run together.
TEST(GlooReasons, OfAFailureAreThoseOfTheLibraryIfThereIsNoOther) {
  const auto errors = testing_support::run_threads(3, [](int thread) {
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
    if (thread == 1) store = c10::make_intrusive<FullStore>();
    ToldCaller rank({}, /*size=*/thread == 1 ? 2 : 1, store);
    if (thread == 2) rank.library->refusal = "[/build/gloo/transport.cc:7] no such device";
    const auto work = rank.start_sum(torch::ones({4}));
    rank.library->sum->end(std::make_exception_ptr(
        std::runtime_error("[/build/gloo/pair.cc:534] Connection closed by peer")));
    work->wait();
  });
  const std::string call = "rank 0: all_reduce[float32, 4] (operation 0) over gloo failed: ";
  EXPECT_EQ(errors[0], call + "Connection closed by peer");
  EXPECT_EQ(errors[1], call +
                           "Connection closed by peer; rank 0 cannot use the store: no room for "
                           "another key");
  EXPECT_EQ(errors[2], call + "no such device");
}

}  // namespace
}  // namespace lockstep::comm
