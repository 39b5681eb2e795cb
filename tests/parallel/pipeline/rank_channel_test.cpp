// Messages between ranks: their contents, the backend that carries them, and what ends them.
#include <lockstep/parallel/pipeline/rank_channel.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/loopback_backend.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::pipeline {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

// NCCL would run a rank's messages in one order, which no table guarantees.
TEST(RankChannel, SendsOverGlooWhereTheGroupIsOverNccl) {
  EXPECT_EQ(message_backend({.messages_overlap = false}), "gloo");
  for (const char* backend : {"shm", "gloo", "hierarchical"}) {
    EXPECT_EQ(run_group(2, backend,
                        [](ProcessGroup group) {
                          LOCKSTEP_CHECK(!message_backend(group.traits()), group.backend());
                          group.barrier();
                        }),
              no_errors(2));
  }
}

struct ChannelCase {
  const char* group;
  std::optional<std::string> messages;  // a separate backend for messages, as over NCCL
};

void PrintTo(const ChannelCase& c, std::ostream* out) {
  *out << c.group << " with messages over " << c.messages.value_or("it");
}

class RankChannels : public testing::TestWithParam<ChannelCase> {};
INSTANTIATE_TEST_SUITE_P(Backends, RankChannels,
                         testing::Values(ChannelCase{"shm", {}}, ChannelCase{"gloo", {}},
                                         ChannelCase{"hierarchical", {}},
                                         ChannelCase{"shm", "gloo"}, ChannelCase{"gloo", "shm"}));

// Message `number` of rank `from`: tensors of many kinds, of which the large one is longer than any
// ring. Their description exceeds the first part of the header.
StageMessage message_of_rank(int from, int number) {
  torch::Tensor counted =
      torch::arange(2 * 3 * 4 * 5, torch::kFloat32).view({2, 3, 4, 5}) + 100 * from + 1000 * number;
  StageMessage message;
  message.tensors = {counted, torch::Tensor(),
                     counted.contiguous(torch::MemoryFormat::ChannelsLast),
                     counted.select(3, 1),                        // not contiguous
                     torch::full({1}, number).expand({7}),        // repeats one element
                     torch::full({1 << 20}, 10 * from + number),  // 8 MiB
                     torch::empty({0, 4}), counted.sum().to(torch::kBFloat16),
                     // Lazy: their memory holds other values.
                     torch::complex(counted, counted + 1).conj(),
                     torch::imag(torch::complex(counted, counted + 2).conj())};
  for (int i = 0; i < 8; ++i) message.tensors.push_back(counted.narrow(1, 0, 1).contiguous() + i);
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    message.requires_grad.push_back(message.tensors[i].defined() && i % 3 == 0);
  }
  return message;
}

void require_equal(const StageMessage& got, const StageMessage& sent) {
  LOCKSTEP_CHECK(got.tensors.size() == sent.tensors.size(), got.tensors.size(), " tensors");
  LOCKSTEP_CHECK(got.requires_grad == sent.requires_grad, "other gradients are wanted");
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const torch::Tensor &mine = got.tensors[i], &other = sent.tensors[i];
    LOCKSTEP_CHECK(mine.defined() == other.defined(), "tensor ", i);
    if (!mine.defined()) continue;
    const torch::Tensor plain = other.resolve_conj().resolve_neg();
    LOCKSTEP_CHECK(mine.scalar_type() == other.scalar_type() && mine.equal(plain), "tensor ", i);
    const bool dense = plain.is_non_overlapping_and_dense();
    LOCKSTEP_CHECK(dense ? mine.strides() == plain.strides() : mine.is_contiguous(), "tensor ", i);
  }
}

// All ranks send to all others in both directions before they receive anything.
TEST_P(RankChannels, CarryMessagesBothWaysAtOnce) {
  const auto& [backend, messages] = GetParam();
  constexpr int kRanks = 3, kMessages = 2;
  const auto errors = run_group(kRanks, backend, [&, messages = messages](ProcessGroup group) {
    RankChannel channel =
        messages ? RankChannel(group, torch::kCPU, messages) : RankChannel(group, torch::kCPU);
    if (channel.backend() != messages.value_or(group.backend())) throw Error(channel.backend());
    for (int number = 0; number < kMessages; ++number) {
      for (int to = 0; to < kRanks; ++to) {
        if (to != group.rank()) channel.send(to, message_of_rank(group.rank(), number));
      }
    }
    for (int from = kRanks - 1; from >= 0; --from) {
      for (int number = 0; from != group.rank() && number < kMessages; ++number) {
        require_equal(channel.receive(from), message_of_rank(from, number));
      }
    }
    channel.finish();
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(kRanks));
}

// A header holds 64 numbers: two counts, one number for each undefined tensor, and six for a tensor
// of one dimension. With 57 tensors the description just fits. A message may leave out which
// gradients are wanted.
TEST(RankChannel, CarriesDescriptionsThatJustFitAndThatDoNot) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    RankChannel channel(group, torch::kCPU);
    for (std::size_t count = 55; count < 60; ++count) {
      StageMessage message;
      message.tensors.resize(count);
      message.tensors.back() = torch::full({2}, static_cast<double>(count));
      if (group.rank() == 0) {
        channel.send(1, message);
      } else {
        message.requires_grad.assign(count, false);
        require_equal(channel.receive(0), message);
      }
    }
    channel.finish();
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Rank 1 waits for a message, rank 2 for a collective of the group.
TEST_P(RankChannels, EndWithTheirGroupOnAllRanks) {
  const auto& [backend, messages] = GetParam();
  const auto errors = run_group(3, backend, [&, messages = messages](ProcessGroup group) {
    RankChannel channel =
        messages ? RankChannel(group, torch::kCPU, messages) : RankChannel(group, torch::kCPU);
    if (group.rank() == 0) {
      channel.abort("the stage is broken");
      throw Error("the stage is broken");
    }
    if (group.rank() == 1) channel.receive(0);
    group.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the stage is broken")));
}

// A channel of rank 0 to a simulated rank 1.
struct LoopbackChannel {
  explicit LoopbackChannel(BackendTraits traits = {}) : channel(make_group(traits), torch::kCPU) {}

  ProcessGroup make_group(BackendTraits traits) const {
    comm::Membership membership;
    membership.name = "world";
    membership.size = 2;
    membership.world_ranks = {0, 1};
    membership.options.flight_recorder_directory = dumps.path();
    membership.progress = std::make_shared<comm::Progress>();
    membership.recorder = std::make_shared<comm::FlightRecorder>(0, 2);
    const auto backend = std::make_shared<testing_support::LoopbackBackend>(loopback, 0);
    backend->its_traits = traits;
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(std::move(membership), backend));
  }
  void send(const torch::Tensor& tensor = torch::ones({3})) {
    StageMessage message;
    message.tensors = {tensor};
    message.requires_grad = {false};
    channel.send(1, std::move(message));
  }
  void break_peer(bool broken) {
    loopback->break_rank(broken ? 1 : -2, std::make_exception_ptr(CommError("rank 1 is gone")));
  }

  const testing_support::TemporaryDirectory dumps;
  const std::shared_ptr<testing_support::Loopback> loopback =
      std::make_shared<testing_support::Loopback>();
  RankChannel channel;
};

TEST(RankChannelFailures, ASendThatFailedAtOnceIsReported) {
  LoopbackChannel made;
  made.break_peer(true);
  made.send();
  made.break_peer(false);
  EXPECT_THAT(message_of<CommError>([&] { made.channel.finish(); }), HasSubstr("rank 1 is gone"));
}

TEST(RankChannelFailures, ASendThatFailedLaterIsReportedByTheNextCall) {
  for (const bool sends_again : {true, false}) {
    LoopbackChannel made;
    made.send();
    made.break_peer(true);  // the sends that are under way fail
    made.break_peer(false);
    const auto next = [&] { sends_again ? made.send() : made.channel.finish(); };
    EXPECT_THAT(message_of<CommError>(next), HasSubstr("rank 1 is gone"));
    EXPECT_EQ(message_of<CommError>([&] { made.send(); }), "nothing was thrown") << "once";
  }
}

// Over shared memory, a thread of the channel writes what is left of a message. It learns of the
// failure, and drops the message, before any call of the channel.
TEST(RankChannelFailures, AFailureThatOnlyTheWritingThreadHasSeenIsReported) {
  for (const bool sends_again : {true, false}) {
    LoopbackChannel made({.progresses_alone = false});
    const torch::Tensor tensor = torch::ones({3});
    made.send(tensor);
    EXPECT_GT(tensor.storage().use_count(), 1U) << "held until it is sent";
    made.break_peer(true);
    made.break_peer(false);
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(10);
    while (tensor.storage().use_count() > 1 && Clock::now() < limit) std::this_thread::yield();
    ASSERT_EQ(tensor.storage().use_count(), 1U) << "dropped";
    const auto next = [&] { sends_again ? made.send() : made.channel.finish(); };
    EXPECT_THAT(message_of<CommError>(next), HasSubstr("rank 1 is gone"));
    EXPECT_EQ(message_of<CommError>([&] { made.channel.finish(); }), "nothing was thrown")
        << "once";
  }
}

}  // namespace
}  // namespace lockstep::pipeline
