// What a backward may do while its step is captured in a graph, and which groups can be replayed.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/parallel/layers.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/recorded_calls.h>
#include <tests/support/scoped_environment.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::input_of;
using testing_support::Layers;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::RecordedCalls;
using testing_support::run_group;

ProcessGroup alone() { return init_process_group({.environment = WorkerEnvironment{}}); }

struct AskedWork final : Work {
  explicit AskedWork(std::atomic<int>& questions) : asked(questions) {}
  void wait(std::optional<std::chrono::milliseconds>) override {}
  bool is_completed() override { return ++asked > 0; }
  std::exception_ptr error() const override { return nullptr; }
  std::atomic<int>& asked;
};

int questions_in_a_backward(ProcessGroup group) {
  std::atomic<int> asked = 0;
  Layers net(3);
  DistributedDataParallel ddp(net, std::move(group));
  ddp.register_comm_hook([&](const GradBucket&) { return std::make_shared<AskedWork>(asked); });
  ddp.forward(input_of(0), "abc").sum().backward();
  return asked;
}

// Over NCCL each completion query would be an event query, which is illegal during a graph capture.
TEST(ReducerCapture, AsksNoOperationThatRunsOnAStream) {
  EXPECT_EQ(questions_in_a_backward(alone()), 0);
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    if (questions_in_a_backward(std::move(group)) == 0) throw Error("nobody moved shared memory");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ReducerCapture, GroupsSayWhyTheyCannotBeReplayed) {
  EXPECT_TRUE(alone().runs_on_stream());
  EXPECT_EQ(alone().why_not_capturable(), "");
  for (const std::string backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [&](ProcessGroup group) {
      if (group.runs_on_stream()) throw Error("runs on a stream");
      EXPECT_THAT(group.why_not_capturable(), HasSubstr("cannot communicate over " + backend));
    });
    EXPECT_EQ(errors, no_errors(2));
  }
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_NAN_CHECK", "1");
  EXPECT_THAT(alone().why_not_capturable(), HasSubstr("unset LOCKSTEP_NAN_CHECK"));
}

void backward_of(DistributedDataParallel<Layers>& ddp, int step) {
  ddp.forward(input_of(0, step), "abc").sum().backward();
}

void zero(Layers& net) {
  for (auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
}

TEST(ReducerCapture, ARecordedBackwardIsReplayed) {
  Layers net(3);
  DistributedDataParallel ddp(net, alone());
  backward_of(ddp, 1);
  const torch::Tensor input = input_of(0, 2);
  RecordedCalls graph;
  graph.record([&] {
    const CaptureScope capturing;
    zero(net);
    ddp.forward(input, "abc").sum().backward();
  });
  for (const int step : {3, 4}) {
    Layers expected(3);
    expected->forward(input_of(0, step), "abc").sum().backward();
    input.copy_(input_of(0, step));
    graph.replay();
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].grad().equal(expected->parameters()[i].grad())) << i;
    }
  }
}

// Each refusal is a one-line message with a remedy, reported on the capturing rank.
TEST(ReducerCapture, RefusesWhatTheHostDecides) {
  const auto refusal = [](const DdpOptions& options, int backwards_before,
                          const CommHook& hook = {}) {
    Layers net(3);
    DistributedDataParallel ddp(net, alone(), options);
    if (hook) ddp.register_comm_hook(hook);
    for (int i = 0; i < backwards_before; ++i) backward_of(ddp, i);
    const CaptureScope capturing;
    return message_of<ConfigError>([&] { backward_of(ddp, 9); });
  };
  EXPECT_THAT(refusal({.find_unused_parameters = true}, 2),
              HasSubstr("rank 0: DistributedDataParallel: a backward() that is captured in a graph "
                        "cannot look for unused parameters, which the host does each time; set "
                        "static_graph = true"));
  EXPECT_THAT(refusal({}, 0), HasSubstr("cannot be the first one"));
  EXPECT_THAT(refusal({.static_graph = true}, 0), HasSubstr("cannot be the first one"));
  std::atomic<int> asked = 0;
  EXPECT_THAT(refusal({}, 1, [&](const GradBucket&) { return std::make_shared<AskedWork>(asked); }),
              HasSubstr("cannot run a communication hook"));
  EXPECT_EQ(refusal({.static_graph = true}, 1), "nothing was thrown");

  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    Layers net(3);
    DistributedDataParallel ddp(net, group);
    backward_of(ddp, 1);
    const CaptureScope capturing;
    backward_of(ddp, 2);
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("cannot communicate over shm, whose operations the host moves")));
}

}  // namespace
}  // namespace lockstep
