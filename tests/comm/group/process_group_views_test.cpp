// Tensors whose memory does not hold their values, lazy conjugates and negatives, or not all of
// them, because elements repeat. And what a rank that is alone cannot do.
#include <lockstep/comm/group/process_group.h>

#include <functional>
#include <initializer_list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;

torch::Tensor ones(std::int64_t count) { return torch::ones({count}); }
torch::Tensor conjugate() { return torch::ones({4}, torch::kComplexFloat).conj(); }
torch::Tensor negative() { return torch::imag(conjugate()); }
constexpr const char* kLazy = " is a lazy conjugate or negative; call resolve_conj() or";

struct Place {
  std::function<void(ProcessGroup&)> call;  // called on rank 1 of 2
  const char* argument;
};

// A transport that reads their memory would not see the conjugate or negative sign.
TEST(ProcessGroupViews, OfLazySignsAreRefusedInEveryPlace) {
  const auto plain = [] { return torch::ones({4}, torch::kComplexFloat); };
  const Place places[] = {
      {[&](auto& g) { g.all_reduce(conjugate()); }, "all_reduce: tensor"},
      {[&](auto& g) { g.all_reduce(negative()); }, "all_reduce: tensor"},
      {[&](auto& g) { g.broadcast(negative(), 0); }, "broadcast: tensor"},
      {[&](auto& g) { g.broadcast(negative(), 1); }, "broadcast: tensor"},
      {[&](auto& g) { g.reduce(conjugate(), 0); }, "reduce: tensor"},
      {[&](auto& g) { g.reduce(conjugate(), 1); }, "reduce: tensor"},
      {[&](auto& g) { g.all_gather({plain(), plain()}, conjugate()); }, "all_gather: input"},
      {[&](auto& g) { g.all_gather({plain(), conjugate()}, plain()); }, "all_gather: outputs[1]"},
      {[&](auto& g) { g.all_gather_into_tensor(ones(8), negative()); },
       "all_gather_into_tensor: input"},
      {[&](auto& g) { g.all_gather_into_tensor(negative(), ones(2)); },
       "all_gather_into_tensor: output"},
      {[&](auto& g) { g.gather(negative(), {}, 0); }, "gather: input"},
      {[&](auto& g) { g.gather(ones(4), {ones(4), negative()}, 1); }, "gather: outputs[1]"},
      {[&](auto& g) { g.scatter(negative(), {}, 0); }, "scatter: output"},
      {[&](auto& g) { g.scatter(ones(4), {negative(), ones(4)}, 1); }, "scatter: inputs[0]"},
      {[&](auto& g) { g.reduce_scatter(conjugate(), {plain(), plain()}); },
       "reduce_scatter: output"},
      {[&](auto& g) { g.reduce_scatter(plain(), {plain(), conjugate()}); },
       "reduce_scatter: inputs[1]"},
      {[&](auto& g) { g.reduce_scatter_tensor(ones(2), negative()); },
       "reduce_scatter_tensor: input"},
      {[&](auto& g) { g.reduce_scatter_tensor(negative(), ones(8)); },
       "reduce_scatter_tensor: output"},
      {[&](auto& g) { g.all_to_all({ones(4), ones(4)}, {ones(4), negative()}); },
       "all_to_all: inputs[1]"},
      {[&](auto& g) { g.all_to_all({negative(), ones(4)}, {ones(4), ones(4)}); },
       "all_to_all: outputs[0]"},
      {[&](auto& g) { g.all_to_all_single(ones(4), negative()); }, "all_to_all_single: input"},
      {[&](auto& g) { g.all_to_all_single(negative(), ones(4)); }, "all_to_all_single: output"},
      {[&](auto& g) { g.all_reduce_coalesced({ones(4), negative()}); },
       "all_reduce_coalesced: tensors[1]"},
      {[&](auto& g) { g.broadcast_coalesced({conjugate(), ones(4)}, 0); },
       "broadcast_coalesced: tensors[0]"},
      {[&](auto& g) { g.send(conjugate(), 0); }, "send: tensor"},
      {[&](auto& g) { g.recv(negative(), 0); }, "recv: tensor"},
      {[&](auto& g) { g.batch_isend_irecv({{P2POp::Kind::kSend, negative(), 0}}); },
       "send: tensor"},
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    EXPECT_TRUE(conjugate().is_conj());
    EXPECT_TRUE(negative().is_neg());
    for (const Place& place : places) {
      if (group.rank() != 1) continue;
      EXPECT_THAT(testing_support::message_of<ConfigError>([&] { place.call(group); }),
                  HasSubstr(lockstep::str("rank 1: ", place.argument, kLazy)));
    }
    auto tensor = torch::ones({4}, torch::kComplexFloat) * c10::complex<float>(0, 1);
    tensor = tensor.conj().resolve_conj();
    group.all_reduce(tensor);
    EXPECT_TRUE(tensor.equal(torch::ones({4}, torch::kComplexFloat) * c10::complex<float>(0, -2)));
  });
  EXPECT_EQ(errors, no_errors(2));
}

// What arrives last in the one element would depend on the transport.
TEST(ProcessGroupViews, OfRepeatedElementsAreRefusedInEveryPlaceThatIsWritten) {
  const auto repeated = [](torch::ScalarType type = torch::kFloat32) {
    return torch::ones({1}, type).expand({4});
  };
  const Place places[] = {
      {[&](auto& g) { g.all_reduce(repeated(torch::kComplexFloat)); }, "all_reduce: tensor"},
      {[&](auto& g) { g.broadcast(repeated(), 0); }, "broadcast: tensor"},
      {[&](auto& g) { g.reduce(repeated(), 1); }, "reduce: tensor"},
      {[&](auto& g) { g.all_gather({ones(4), repeated()}, ones(4)); }, "all_gather: outputs[1]"},
      {[&](auto& g) { g.gather(ones(4), {repeated(), ones(4)}, 1); }, "gather: outputs[0]"},
      {[&](auto& g) { g.reduce_scatter(repeated(), {ones(4), ones(4)}); },
       "reduce_scatter: output"},
      {[&](auto& g) { g.reduce_scatter_tensor(repeated(), ones(8)); },
       "reduce_scatter_tensor: output"},
      {[&](auto& g) { g.all_to_all({ones(4), repeated()}, {ones(4), ones(4)}); },
       "all_to_all: outputs[1]"},
      {[&](auto& g) { g.all_to_all_single(repeated(), ones(4)); }, "all_to_all_single: output"},
      {[&](auto& g) { g.all_reduce_coalesced({ones(4), repeated()}); },
       "all_reduce_coalesced: tensors[1]"},
      {[&](auto& g) { g.broadcast_coalesced({repeated(), ones(4)}, 0); },
       "broadcast_coalesced: tensors[0]"},
      {[&](auto& g) { g.recv(repeated(), 0); }, "recv: tensor"},
      {[&](auto& g) { g.batch_isend_irecv({{P2POp::Kind::kRecv, repeated(), 0}}); },
       "recv: tensor"},
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    for (const Place& place : places) {
      if (group.rank() != 1) continue;
      EXPECT_THAT(testing_support::message_of<ConfigError>([&] { place.call(group); }),
                  HasSubstr(lockstep::str("rank 1: ", place.argument,
                                          " has several elements at one address (shape [4], "
                                          "strides [0])")));
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ProcessGroupAlone, EndsWithTheFirstReasonOfItsAborts) {
  const testing_support::TemporaryDirectory directory;
  auto group = init_process_group({.flight_recorder_directory = directory.path() / "flight",
                                   .environment = WorkerEnvironment{}});
  group.abort("enough");
  group.abort("too much");
  auto tensor = ones(3);
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { group.barrier(); }, [&] { group.all_reduce(tensor, ReduceOp::kAverage); },
           [&] { group.async_broadcast(tensor, 0); }}) {
    EXPECT_THAT(testing_support::message_of<CommError>(call), ::testing::StartsWith("enough"));
  }
}

TEST(ProcessGroupAlone, HasNobodyToReceiveFrom) {
  const auto errors = run_group(1, "auto", [](ProcessGroup group) {
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { group.recv(ones(3)); }),
                HasSubstr("recv: this rank is alone in its group: nobody can send"));
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { group.recv(ones(3), 0); }),
                HasSubstr("recv: peer is rank 0 of the group, this rank itself"));
  });
  EXPECT_EQ(errors, no_errors(1));
}

// An element that is nowhere is in no other tensor.
TEST(ProcessGroupViews, OfNothingMayBeGivenTwice) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const auto nothing = torch::zeros({0});
    group.all_gather({nothing, nothing}, nothing);
    group.reduce_scatter(nothing, {nothing, nothing});
    auto some = torch::ones({2});
    group.all_reduce_coalesced({nothing, some, nothing});
    EXPECT_EQ(some.sum().item<float>(), 4);
    group.broadcast_coalesced({nothing, some, nothing}, 1);
    EXPECT_EQ(some.sum().item<float>(), 4);
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
