// Tensors whose memory does not hold their values, lazy conjugates and negatives, or not all of
// them, because elements repeat or are in two tensors. And what a rank that is alone cannot do.
#include <lockstep/comm/group/process_group.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

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
constexpr const char* kLazy = " is a lazy conjugate or negative view; call resolve_conj() or";

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

// A view of four elements, of which several or two have one address.
struct Repetition {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

// What arrives last in the shared element would depend on the transport.
TEST(ProcessGroupViews, OfRepeatedElementsAreRefusedInEveryPlaceThatIsWritten) {
  const Repetition repetitions[] = {{{4}, {0}}, {{2, 2}, {1, 1}}};
  for (const Repetition& each : repetitions) {
    const auto repeated = [&](torch::ScalarType type = torch::kFloat32) {
      return torch::ones({4}, type).as_strided(each.sizes, each.strides);
    };
    const auto plain = [&] { return torch::ones(each.sizes); };
    const Place places[] = {
        {[&](auto& g) { g.all_reduce(repeated(torch::kComplexFloat)); }, "all_reduce: tensor"},
        {[&](auto& g) { g.broadcast(repeated(), 0); }, "broadcast: tensor"},
        {[&](auto& g) { g.reduce(repeated(), 1); }, "reduce: tensor"},
        {[&](auto& g) { g.all_gather({plain(), repeated()}, plain()); }, "all_gather: outputs[1]"},
        {[&](auto& g) { g.all_gather_into_tensor(repeated(), ones(2)); },
         "all_gather_into_tensor: output"},
        {[&](auto& g) { g.gather(plain(), {repeated(), plain()}, 1); }, "gather: outputs[0]"},
        {[&](auto& g) { g.scatter(repeated(), {plain(), plain()}, 1); }, "scatter: output"},
        {[&](auto& g) { g.reduce_scatter(repeated(), {plain(), plain()}); },
         "reduce_scatter: output"},
        {[&](auto& g) { g.reduce_scatter_tensor(repeated(), ones(8)); },
         "reduce_scatter_tensor: output"},
        {[&](auto& g) { g.all_to_all({plain(), repeated()}, {plain(), plain()}); },
         "all_to_all: outputs[1]"},
        {[&](auto& g) { g.all_to_all_single(repeated(), plain()); }, "all_to_all_single: output"},
        {[&](auto& g) { g.all_reduce_coalesced({plain(), repeated()}); },
         "all_reduce_coalesced: tensors[1]"},
        {[&](auto& g) { g.broadcast_coalesced({repeated(), plain()}, 0); },
         "broadcast_coalesced: tensors[0]"},
        {[&](auto& g) { g.recv(repeated(), 0); }, "recv: tensor"},
        {[&](auto& g) { g.batch_isend_irecv({{P2POp::Kind::kRecv, repeated(), 0}}); },
         "recv: tensor"},
    };
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      for (const Place& place : places) {
        if (group.rank() != 1) continue;
        EXPECT_THAT(
            testing_support::message_of<ConfigError>([&] { place.call(group); }),
            HasSubstr(lockstep::str(
                "rank 1: ", place.argument, " has several elements at one address (shape ",
                at::IntArrayRef(each.sizes), ", strides ", at::IntArrayRef(each.strides), ")")));
      }
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

// Rows that share a single element overlap, and rows that only touch do not.
TEST(ProcessGroupViews, OverlapThemselvesFromOneElementOn) {
  struct Strides {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    bool overlap;
  };
  const Strides cases[] = {
      {{2, 3}, {2, 1}, true},                                 // 0 1 2, 2 3 4
      {{2, 3}, {4, 1}, false},                                // 0 1 2, 4 5 6
      {{3, 2}, {1, 2}, true},                                 // the first, transposed
      {{3, 2}, {1, 3}, false},                                // 0 3, 1 4, 2 5
      {{2, 2, 2}, {3, 2, 1}, true},                           // 0 to 3, 3 to 6
      {{2, 2, 2}, {1, 2, 4}, false}, {{2, 3}, {4, 2}, true},  // 0 2 4, 4 6 8
      {{2, 3}, {5, 2}, false},                                // 0 2 4, 5 7 9
      {{2, 3}, {3, 2}, false},                                // 0 2 4, 3 5 7
  };
  const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
    for (const Strides& each : cases) {
      const auto tensor = torch::ones({10}).as_strided(each.sizes, each.strides);
      const std::string message =
          testing_support::message_of<ConfigError>([&] { group.all_reduce(tensor); });
      EXPECT_THAT(message, HasSubstr(each.overlap ? "tensor has several elements at one address"
                                                  : "nothing was thrown"))
          << at::IntArrayRef(each.sizes) << ' ' << at::IntArrayRef(each.strides);
    }
  });
  EXPECT_EQ(errors, no_errors(1));
}

// Two tensors of these sizes in one memory. The first element of the second one is either the last
// element of the first one, or the next.
using Neighbours = std::function<Tensors(std::int64_t first, std::int64_t second)>;

struct NeighboursCase {
  std::function<void(ProcessGroup&, const Neighbours&)> call;  // the root is rank 1 of 2
  const char* expected;
};

const std::vector<NeighboursCase> kNeighbours = {
    {[](auto& g, auto& pair) { g.all_gather(pair(4, 4), ones(4)); },
     "all_gather: outputs[1] shares memory with outputs[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.all_gather({two[0], ones(4)}, two[1]);
     },
     "all_gather: input shares memory with outputs[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(8, 4);
       g.all_gather_into_tensor(two[0], two[1]);
     },
     "all_gather_into_tensor: input shares memory with output,"},
    {[](auto& g, auto& pair) { g.gather(ones(4), g.rank() == 1 ? pair(4, 4) : Tensors(), 1); },
     "gather: outputs[1] shares memory with outputs[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.gather(two[0], g.rank() == 1 ? Tensors{two[1], ones(4)} : Tensors(), 1);
     },
     "gather: input shares memory with outputs[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.scatter(two[0], g.rank() == 1 ? Tensors{ones(4), two[1]} : Tensors(), 1);
     },
     "scatter: inputs[1] shares memory with output,"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.reduce_scatter(two[1], {ones(4), two[0]});
     },
     "reduce_scatter: inputs[1] shares memory with output,"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(8, 4);
       g.reduce_scatter_tensor(two[1], two[0]);
     },
     "reduce_scatter_tensor: input shares memory with output,"},
    {[](auto& g, auto& pair) { g.all_to_all(pair(4, 4), {ones(4), ones(4)}); },
     "all_to_all: outputs[1] shares memory with outputs[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.all_to_all({ones(4), two[0]}, {two[1], ones(4)});
     },
     "all_to_all: inputs[0] shares memory with outputs[1]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       g.all_to_all_single(two[0], two[1]);
     },
     "all_to_all_single: input shares memory with output,"},
    {[](auto& g, auto& pair) { g.all_reduce_coalesced(pair(2, 3)); },
     "all_reduce_coalesced: tensors[1] shares memory with tensors[0]"},
    {[](auto& g, auto& pair) { g.broadcast_coalesced(pair(2, 3), 1); },
     "broadcast_coalesced: tensors[1] shares memory with tensors[0]"},
    {[](auto& g, auto& pair) {
       const Tensors two = pair(4, 4);
       const int peer = 1 - g.rank();
       for (const auto& work : g.batch_isend_irecv(
                {{P2POp::Kind::kSend, two[0], peer}, {P2POp::Kind::kRecv, two[1], peer}})) {
         work->wait();
       }
     },
     "batch_isend_irecv: operations[0] shares memory with operations[1]"},
};

// On rank 1, the tensors of each call first share one element. Nothing is sent then. Afterwards
// both ranks make the same call with tensors that only touch.
TEST(ProcessGroupViews, ThatShareOneElementAreRefusedAndThoseThatTouchAreNot) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const auto neighbours = [](std::int64_t shared) {
      return [shared](std::int64_t first, std::int64_t second) {
        const auto memory = torch::ones({first + second});
        return Tensors{memory.narrow(0, 0, first), memory.narrow(0, first - shared, second)};
      };
    };
    for (const NeighboursCase& each : kNeighbours) {
      if (group.rank() == 1) {
        EXPECT_THAT(
            testing_support::message_of<ConfigError>([&] { each.call(group, neighbours(1)); }),
            HasSubstr(each.expected));
      }
      each.call(group, neighbours(0));
    }
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
