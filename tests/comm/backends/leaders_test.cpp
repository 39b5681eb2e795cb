// The transport between the leaders of several hosts: how it is chosen, and a device's transport
// for tensors in host memory.
#include <lockstep/comm/backends/through_device/through_device.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo_groups.h>
#include <tests/support/groups.h>
#include <tests/support/scoped_environment.h>
#include <latch>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing_support::Caller;
using testing_support::no_errors;

// --- Through a device ----------------------------------------------------------------------------

// Records the memory that is passed to it, which must not be the caller's.
class Spy final : public Backend {
 public:
  explicit Spy(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  const std::string& name() const override { return inner_->name(); }
  std::shared_ptr<Work> start(const Collective& call) override {
    note(call.input);
    note(call.output);
    return inner_->start(call);
  }
  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, MessageTag tag) override {
    note(tensor);
    return inner_->send(std::move(tensor), destination, tag);
  }
  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             MessageTag tag) override {
    note(tensor);
    return inner_->recv(std::move(tensor), source, tag);
  }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return inner_->allocate(shape, dtype);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void check() override { inner_->check(); }

  std::vector<torch::Tensor> seen;

 private:
  void note(const torch::Tensor& tensor) {
    if (tensor.defined()) seen.push_back(tensor);
  }
  const std::shared_ptr<Backend> inner_;
};

std::vector<std::string> run(int size, const std::function<void(Caller&, Spy&)>& body,
                             milliseconds timeout = seconds(30)) {
  return testing_support::run_gloo_threads(
      size,
      [&](Caller& direct) {
        const auto spy = std::make_shared<Spy>(direct.backend);
        Caller caller(through_device::make(spy, {.rank = direct.rank, .timeout = timeout}),
                      direct.rank, size);
        body(caller, *spy);
        direct.number = caller.number;
      },
      timeout);
}

TEST(ThroughDevice, Reduces) {
  const auto errors = run(2, [](Caller& caller, Spy&) {
    for (const std::int64_t count : {0, 1, 37}) check_reductions(caller, count);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ThroughDevice, MovesAndSends) {
  const auto errors = run(3, [](Caller& caller, Spy&) {
    for (const auto type : {torch::kFloat32, torch::kUInt8, torch::kInt16}) {
      for (const std::int64_t count : {1, 1000}) check_moves(caller, count, type);
    }
    check_messages(caller, 1000, /*any_source=*/true);
    caller.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

// Like the test above, but without wait(): the hierarchy polls the stages that it started.
TEST(ThroughDevice, BringsBackTheResultWhenAskedWhetherItIsThere) {
  const auto errors = run(2, [](Caller& caller, Spy&) {
    auto tensor = torch::full({1000}, caller.rank + 1);
    const auto work = caller.start(CallKind::kAllReduce, {}, tensor);
    while (!work->is_completed()) std::this_thread::yield();
    if (!torch::equal(tensor, torch::full({1000}, 3))) throw Error("wrong");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ThroughDevice, TheInnerBackendSeesOtherMemory) {
  const auto errors = run(2, [](Caller& caller, Spy& spy) {
    const auto input = torch::ones({8});
    auto output = torch::empty({8}), gathered = torch::empty({16});
    caller.all_reduce(output);
    caller.start(CallKind::kBroadcast, {}, output, ReduceOp::kSum, 1)->wait();
    caller.start(CallKind::kAllGather, input, gathered)->wait();
    if (spy.seen.size() != 4) throw Error(str("saw ", spy.seen.size(), " tensors"));
    for (const auto& tensor : spy.seen) {
      for (const auto& own : {input, output, gathered}) {
        if (tensor.data_ptr() == own.data_ptr()) throw Error("the caller's memory");
      }
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ThroughDevice, ADeadlineEndsBoth) {
  std::latch late(1);
  const auto errors = run(
      2,
      [&](Caller& caller, Spy& spy) {
        auto tensor = torch::ones({4});
        if (caller.rank == 1) return late.wait();
        const auto work = caller.start(CallKind::kAllReduce, {}, tensor);
        EXPECT_THROW(work->wait(milliseconds(50)), TimeoutError);
        late.count_down();
        EXPECT_TRUE(work->is_completed());
        EXPECT_NE(work->error(), nullptr);
        EXPECT_THROW(spy.check(), TimeoutError);
        EXPECT_THROW(caller.backend->check(), TimeoutError);
      },
      seconds(2));
  EXPECT_THAT(errors, Each(HasSubstr("waited 0.05 s in all_reduce[float32, 4]")));
}

TEST(ThroughDevice, AnAbortReachesThePeers) {
  const auto errors = run(2, [](Caller& caller, Spy&) {
    caller.barrier();
    if (caller.rank == 1) return caller.backend->abort("the loss is not a number");
    auto tensor = torch::ones({4});
    const auto work = caller.start(CallKind::kAllReduce, {}, tensor);
    while (!work->is_completed()) std::this_thread::yield();
    if (work->error()) std::rethrow_exception(work->error());
  });
  EXPECT_THAT(errors, Each(HasSubstr("the loss is not a number")));
}

// --- The choice ----------------------------------------------------------------------------------

struct Choice {
  const char* name;
  std::vector<std::optional<std::string>> leaders;  // option of each rank; two hosts of two ranks
  std::optional<std::string> environment;
  const char* error;  // error on all ranks; empty if they connect
};

class LeadersChoice : public ::testing::TestWithParam<Choice> {};
INSTANTIATE_TEST_SUITE_P(
    Wishes, LeadersChoice,
    ::testing::Values(
        Choice{"AutoWithoutGpus", {"auto", "auto", "auto", "auto"}, std::nullopt, ""},
        Choice{"Gloo", {"gloo", "gloo", "gloo", "gloo"}, "mpi", ""},
        Choice{"NcclWithoutGpus",
               {"nccl", "nccl", "nccl", "nccl"},
               std::nullopt,
               "on the first rank of each host (ranks 0, 2), a build with NCCL and a device that "
               "is a GPU of its own; choose gloo"},
        Choice{"NcclByTheEnvironment", std::vector<std::optional<std::string>>(4), "nccl",
               "leaders nccl (LOCKSTEP_LEADERS) needs"},
        Choice{"UnknownByTheEnvironment", std::vector<std::optional<std::string>>(4), "mpi",
               ": leaders (LOCKSTEP_LEADERS) must be one of auto, gloo, nccl, got mpi"},
        Choice{"Contradiction",
               {"auto", "auto", "gloo", "gloo"},
               std::nullopt,
               "rank 0 leaders auto, rank 2 leaders gloo"}),
    [](const auto& info) { return info.param.name; });

TEST_P(LeadersChoice, IsTheSameOnAllRanks) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_LEADERS", GetParam().environment);
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = testing_support::run_threads(4, [&](int rank) {
    ProcessGroupOptions options{.backend = "hierarchical",
                                .timeout = seconds(30),
                                .host_id = str(rank / 2),
                                .leaders = GetParam().leaders[static_cast<std::size_t>(rank)],
                                .environment = testing_support::environment_of(rank, 4, fd)};
    try {
      auto group = init_process_group(options);
      auto tensor = torch::full({3}, rank);
      group.all_reduce(tensor);
      if (!torch::equal(tensor, torch::full({3}, 6))) throw Error("wrong");
    } catch (const ConfigError& error) {
      throw Error(str("ConfigError: ", error.what()));
    }
  });
  if (*GetParam().error == '\0') {
    EXPECT_EQ(errors, no_errors(4));
  } else {
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("ConfigError: "), HasSubstr(GetParam().error))));
  }
}

}  // namespace
}  // namespace lockstep
