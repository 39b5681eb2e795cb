// What a group refuses because of the traits of its transport, without a transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include <lockstep/comm/diagnostics/flight_recorder.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/loopback_backend.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using testing::HasSubstr;
using testing_support::Loopback;
using testing_support::LoopbackBackend;
using testing_support::message_of;

// Rank 0 of two ranks, which the world calls 3 and 5.
struct GroupOverTraits {
  explicit GroupOverTraits(const BackendTraits& traits) : group(make(traits)) {}

  ProcessGroup make(const BackendTraits& traits) {
    Membership membership;
    membership.name = "world";
    membership.size = 2;
    membership.world_ranks = {3, 5};
    membership.options.flight_recorder_directory = dumps.path();
    membership.progress = std::make_shared<Progress>();
    membership.recorder = std::make_shared<FlightRecorder>(0, 2);
    backend = std::make_shared<LoopbackBackend>(std::make_shared<Loopback>(), 0);
    backend->its_traits = traits;
    return ProcessGroup(std::make_shared<ProcessGroup::Impl>(std::move(membership), backend));
  }

  const testing_support::TemporaryDirectory dumps;
  std::shared_ptr<LoopbackBackend> backend;
  ProcessGroup group;
};

TEST(GroupCalls, OfAnAlgorithmNeedMessagesThatOverlap) {
  GroupOverTraits rank({.messages_overlap = false});
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree}) {
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { rank.group.all_reduce(torch::ones({4}), ReduceOp::kSum, algorithm); }),
                HasSubstr(str("rank 3: all_reduce: algorithm ", algorithm_name(algorithm),
                              " does not run over loopback, whose messages wait for each other; "
                              "choose native, or backend gloo")));
  }
  EXPECT_EQ(rank.backend->abort_reason, "") << "a wrong call does not end the group";
}

}  // namespace
}  // namespace lockstep::comm
