// Groups whose transport works in host memory, with tensors of a device that the host cannot
// access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/group/group_impl.h>
#include <lockstep/comm/group/group_work.h>
#include <lockstep/comm/group/peer_info.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/far_device/far_device.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using torch::Tensor;
using Works = std::vector<std::shared_ptr<Work>>;
namespace far_device = testing_support::far_device;

// Runs a group in which each rank has its own device, unless `shared` names one device for all.
std::vector<std::string> run_far_group(int size, const std::string& backend,
                                       const std::function<void(ProcessGroup)>& body,
                                       std::optional<int> shared = std::nullopt,
                                       milliseconds timeout = seconds(60)) {
  far_device::install();
  const int fd = listen_on("127.0.0.1", 0);
  return testing_support::run_threads(size, [&](int rank) {
    ProcessGroupOptions options{.backend = backend,
                                .timeout = timeout,
                                .device = far_device::device(shared.value_or(rank)),
                                .environment = testing_support::environment_of(rank, size, fd)};
    if (backend == "hierarchical") {
      options.host_id = str(rank);
      options.environment->local_rank = 0;
      options.environment->local_world_size = 1;
    }
    body(init_process_group(options));
  });
}

Tensor far(const Tensor& tensor, int rank) { return tensor.to(far_device::device(rank)); }

void expect_equal(const std::string& what, const Tensor& got, const Tensor& expected) {
  if (!got.is_privateuseone()) throw Error(what + " came to lie on the host");
  const Tensor here = got.cpu();
  if (torch::equal(here, expected)) return;
  throw Error(str(what, ": got ", here.flatten(), ", expected ", expected.flatten()));
}

// The values of rank r: r, r + 1, ...
Tensor values(int rank, std::int64_t count = 6) { return torch::arange(count) + float(rank); }

class DeviceGroups : public testing::TestWithParam<const char*> {};

TEST_P(DeviceGroups, ReduceWhereTheTensorsAre) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            const int rank = group.rank();
                            const Tensor sum = values(0) + values(1);
                            Tensor tensor = far(values(rank), rank);
                            group.all_reduce(tensor);
                            expect_equal("all_reduce", tensor, sum);
                            group.all_reduce(tensor, ReduceOp::kAverage, Algorithm::kRing);
                            expect_equal("all_reduce by ring", tensor, sum);
                            Tensor transposed = far(values(rank).view({2, 3}), rank).t();
                            group.all_reduce(transposed);
                            expect_equal("all_reduce of a view", transposed, sum.view({2, 3}).t());
                            tensor = far(values(rank), rank);
                            group.reduce(tensor, 1);
                            expect_equal("reduce", tensor, rank == 1 ? sum : values(rank));
                            Tensor half = far(torch::zeros({3}), rank);
                            group.reduce_scatter_tensor(half, far(values(rank), rank));
                            expect_equal("reduce_scatter_tensor", half,
                                         sum.chunk(2)[static_cast<std::size_t>(rank)]);
                            const Tensor other = far(values(rank, 2).to(torch::kInt64), rank);
                            tensor = far(values(rank), rank);
                            group.all_reduce_coalesced({tensor, other});
                            expect_equal("all_reduce_coalesced", tensor, sum);
                            expect_equal("all_reduce_coalesced", other,
                                         (values(0, 2) + values(1, 2)).to(torch::kInt64));
                          }),
            no_errors(2));
}

TEST_P(DeviceGroups, MoveWhatTheTensorsHold) {
  EXPECT_EQ(
      run_far_group(
          2, GetParam(),
          [](ProcessGroup group) {
            const int rank = group.rank();
            const int peer = 1 - rank;
            const auto zeros = [&](at::IntArrayRef shape) {
              return far(torch::zeros(shape), rank);
            };
            Tensor tensor = far(values(rank), rank);
            group.broadcast(tensor, 1);
            expect_equal("broadcast", tensor, values(1));
            Tensor both = zeros({2, 6});
            group.all_gather_into_tensor(both, far(values(rank), rank));
            expect_equal("all_gather_into_tensor", both, torch::stack({values(0), values(1)}));
            const Tensors parts = {zeros({6}), zeros({6})};
            group.gather(far(values(rank), rank), rank == 0 ? parts : Tensors{}, 0);
            if (rank == 0) expect_equal("gather", parts[1], values(1));
            const Tensors inputs = {far(values(5), rank), far(values(7), rank)};
            group.scatter(parts[0], rank == 1 ? inputs : Tensors{}, 1);
            expect_equal("scatter", parts[0], values(rank == 0 ? 5 : 7));
            Tensor exchanged = zeros({6});
            group.all_to_all_single(exchanged, far(values(rank), rank));
            const auto piece = [&](int of) {
              return values(of).chunk(2)[static_cast<std::size_t>(rank)];
            };
            expect_equal("all_to_all_single", exchanged, torch::cat({piece(0), piece(1)}));
            rank == 0 ? group.send(far(values(3), rank), 1, 4) : void(group.recv(tensor, 0, 4));
            if (rank == 1) expect_equal("recv", tensor, values(3));
            const auto works =
                group.batch_isend_irecv({{P2POp::Kind::kSend, far(values(rank), rank), peer, 1},
                                         {P2POp::Kind::kRecv, tensor, peer, 1}});
            for (const auto& work : works) work->wait();
            expect_equal("batch_isend_irecv", tensor, values(peer));
            EXPECT_EQ(group.all_gather_object(str("rank ", rank)),
                      (std::vector<std::string>{"rank 0", "rank 1"}));
          }),
      no_errors(2));
}

TEST_P(DeviceGroups, AllocateOnTheDeviceAndShareNothing) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            const Tensor tensor = group.allocate({2, 3}, torch::kFloat32);
                            EXPECT_EQ(tensor.device(), far_device::device(group.rank()));
                            EXPECT_FALSE(group.shares_memory());
                            EXPECT_TRUE(group.peer_views(tensor).empty());
                            group.all_reduce(tensor.add_(1));
                            expect_equal("all_reduce of allocated memory", tensor,
                                         torch::full({2, 3}, 2));
                          }),
            no_errors(2));
}

// A rank whose device is still busy must not reduce data that is not computed yet, and a call that
// needs no device must not overtake earlier calls.
TEST_P(DeviceGroups, StartInTheOrderOfTheCallsWithoutBlocking) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            const int rank = group.rank();
                            const Tensor first = far(values(rank), rank);
                            const Tensor second = far(values(rank), rank);
                            const Tensor here = values(rank);
                            std::vector<WorkPtr> works;
                            {
                              const far_device::Hold hold;
                              const auto reads = far_device::blocking_reads();
                              works = {group.async_all_reduce(first), group.async_all_reduce(here),
                                       group.async_broadcast(second, 1)};
                              EXPECT_EQ(far_device::blocking_reads(), reads);
                              EXPECT_FALSE(works[1]->is_completed());
                            }
                            works[2]->wait();
                            works[0]->wait();
                            works[1]->wait();
                            expect_equal("the first", first, values(0) + values(1));
                            expect_equal("the third", second, values(1));
                            EXPECT_TRUE(torch::equal(here, values(0) + values(1)));
                          }),
            no_errors(2));
}

// A rank that waits in one group must make progress in the other, or the ranks deadlock.
TEST_P(DeviceGroups, GoOnWhileAnotherGroupIsWaitedFor) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            ProcessGroup other = *group.new_group({0, 1});
                            const int rank = group.rank();
                            const Tensor tensor = far(values(rank), rank);
                            const Tensor more = far(values(rank), rank);
                            const auto work = group.async_all_reduce(tensor);
                            const auto more_work = other.async_all_reduce(more);
                            (rank == 0 ? work : more_work)->wait();
                            (rank == 0 ? more_work : work)->wait();
                            expect_equal("one group", tensor, values(0) + values(1));
                            expect_equal("the other", more, values(0) + values(1));
                          }),
            no_errors(2));
}

// Pending stream work on a tensor completes before another thread or stream receives into it.
TEST_P(DeviceGroups, ReceiveBehindTheStreamThatCalled) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            const int rank = group.rank();
                            if (rank == 0) {
                              group.send(far(values(3), rank), 1, 4);
                              return group.broadcast(far(values(5), rank), 0);
                            }
                            const auto earlier =
                                torch::zeros({6}, torch::TensorOptions().pinned_memory(true));
                            const auto calls = [&](const Tensor& tensor, auto&& call) {
                              const c10::StreamGuard guard(far_device::new_stream(rank));
                              tensor.copy_(earlier, /*non_blocking=*/true);
                              return std::pair(call(tensor), guard.current_stream());
                            };
                            const Tensor message = far(torch::ones({6}), rank);
                            const Tensor shared = far(torch::ones({6}), rank);
                            const auto [recv, first] = calls(
                                message, [&](const Tensor& to) { return group.irecv(to, 0, 4); });
                            const auto [broadcast, second] = calls(shared, [&](const Tensor& to) {
                              return group.async_broadcast(to, 0);
                            });
                            recv->wait();
                            while (!broadcast->is_completed()) std::this_thread::yield();
                            expect_equal("recv", message, values(3));
                            expect_equal("broadcast", shared, values(5));
                            first.synchronize();
                            second.synchronize();
                            expect_equal("recv, later", message, values(3));
                            expect_equal("broadcast, later", shared, values(5));
                          }),
            no_errors(2));
}

TEST_P(DeviceGroups, SendWhatIsOnItsWayWhenTheGroupIsDropped) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            const int rank = group.rank();
                            if (rank == 0) return void(group.isend(far(values(3), 0), 1, 4));
                            Tensor tensor = torch::zeros({6});
                            group.recv(tensor, 0, 4);
                            EXPECT_TRUE(torch::equal(tensor, values(3)));
                          }),
            no_errors(2));
}

TEST_P(DeviceGroups, RefuseToBeCaptured) {
  EXPECT_EQ(
      run_far_group(
          2, GetParam(),
          [](ProcessGroup group) {
            const int rank = group.rank();
            const Tensor before = far(values(rank), rank);
            const Tensor tensor = far(values(rank), rank);
            const auto work = group.async_all_reduce(before);
            group.barrier();
            {
              const CaptureScope capturing;
              const std::string refusal = str("on far:", rank,
                                              " goes through the host, which a captured stream "
                                              "cannot wait for; use NCCL, with a "
                                              "GPU for each rank, or call it outside the capture");
              EXPECT_EQ(message_of<ConfigError>([&] { group.all_reduce(tensor); }),
                        str("rank ", rank, ": all_reduce: tensor ", refusal));
              EXPECT_EQ(message_of<ConfigError>([&] { group.irecv(tensor, 1 - rank); }),
                        str("rank ", rank, ": recv: tensor ", refusal));
              EXPECT_THAT(message_of<ConfigError>([&] { work->wait(); }),
                          HasSubstr("began before this thread's stream was captured in a graph"));
              EXPECT_FALSE(work->is_completed());
              group.barrier();
            }
            group.barrier();
            work->wait();
            expect_equal("what began before", before, values(0) + values(1));
            group.all_reduce(tensor);
            expect_equal("what came after", tensor, values(0) + values(1));
          }),
      no_errors(2));
}

TEST_P(DeviceGroups, ACaptureMayNotWaitForDataThatIsOnItsWay) {
  EXPECT_EQ(run_far_group(2, GetParam(),
                          [](ProcessGroup group) {
                            Tensor tensor = torch::zeros({6});
                            if (group.rank() == 1) {
                              group.recv(tensor, 0, 4);
                              EXPECT_TRUE(torch::equal(tensor, values(3)));
                              return;
                            }
                            const auto work = group.isend(far(values(3), 0), 1, 4);
                            {
                              const CaptureScope capturing;
                              EXPECT_THAT(message_of<ConfigError>([&] { work->wait(); }),
                                          HasSubstr("what rank 0 gives to send"));
                              EXPECT_FALSE(work->is_completed());
                            }
                            work->wait();
                          }),
            no_errors(2));
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceGroups, testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DeviceGroupsDeadline, ADeviceThatGetsNowhereEndsTheGroup) {
  const auto errors = run_far_group(2, "shm", [](ProcessGroup group) {
    const Tensor tensor = far(values(group.rank()), group.rank());
    if (group.rank() == 1) return group.barrier();
    const far_device::Hold hold;
    group.async_all_reduce(tensor)->wait(milliseconds(50));
  });
  EXPECT_THAT(errors[0],
              HasSubstr("what rank 0 gives to all_reduce[float32, 6] on far:0 has not "
                        "reached the host after 0.05 s: earlier work of the device has not ended"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

TEST(DeviceGroupsFailure, OfTheGroupIsHeardWhileDataIsOnItsWay) {
  const auto errors = run_far_group(2, "shm", [](ProcessGroup group) {
    if (group.rank() == 1) return group.abort("enough");
    const far_device::Hold hold;
    const Tensor tensor = far(values(group.rank()), group.rank());
    group.async_all_reduce(tensor)->wait(std::chrono::minutes(5));
  });
  EXPECT_THAT(errors[0], HasSubstr("enough"));
}

// A wrong call is not a failure of the group. The group's first failure reports the recorder's
// location.
TEST(DeviceGroupsFailure, OfAWrongCallIsItsOwn) {
  const auto errors = run_far_group(2, "gloo", [](ProcessGroup group) {
    if (group.rank() == 0) {
      const auto work = group.isend(far(values(0), 0), 1, 1 << 30);
      EXPECT_THAT(message_of<ConfigError>([&] { work->wait(); }),
                  HasSubstr("tags of this backend must be below"));
      EXPECT_NE(work->error(), nullptr);
      EXPECT_TRUE(work->is_completed());
    }
    const Tensor tensor = far(values(group.rank()), group.rank());
    group.all_reduce(tensor);
    expect_equal("all_reduce", tensor, values(0) + values(1));
    group.barrier();
    if (group.rank() == 0) group.abort("enough");
    group.barrier();
    group.barrier();
  });
  EXPECT_THAT(errors, testing::Each(HasSubstr("enough; flight recorder in ")));
}

TEST(DeviceGroupsFailure, OfATensorOnADeviceThatIsNotTheGroups) {
  far_device::install();
  const auto errors = testing_support::run_group(2, "gloo", [](ProcessGroup group) {
    const Tensor tensor = far(values(0), 0);
    EXPECT_THAT(message_of<ConfigError>([&] { group.all_reduce(tensor); }),
                HasSubstr(" is on far:0, expected cpu or cuda"));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A transport that works on the device alone, as NCCL does, in a group of one.
class OnDevice final : public Backend {
 public:
  const std::string& name() const override { return name_; }
  const BackendTraits& traits() const override {
    static constexpr BackendTraits kTraits{.memory = BackendTraits::Memory::kDevice,
                                           .completes_at_once = true};
    return kTraits;
  }
  std::shared_ptr<Work> start(const Collective& call) override {
    const torch::NoGradGuard no_grad;
    for (const Tensor& each : {call.input, call.output}) {
      if (each.defined() && !each.is_privateuseone()) throw Error("a tensor on the host");
    }
    if (call.input.defined() && call.output.defined()) {
      call.output.view({-1}).copy_(call.input.view({-1}));
    }
    return std::make_shared<WorkList>(Works{});
  }
  std::shared_ptr<Work> send(Tensor, int, MessageTag) override { throw Error("not used"); }
  std::shared_ptr<Work> recv(Tensor, std::optional<int>, MessageTag) override {
    throw Error("not used");
  }
  Tensor allocate(at::IntArrayRef, torch::ScalarType) override { throw Error("not used"); }
  void abort(const std::string&) override {}
  void check() override {}

 private:
  const std::string name_ = "on a device";
};

// How often a host thread waits for one number of a device.
template <class Function>
std::ptrdiff_t items_read(const Function& function) {
  const auto count = [] {
    const auto waits = far_device::waits();
    return std::count(waits.begin(), waits.end(), "item");
  };
  const auto before = count();
  function();
  return count() - before;
}

TEST(ObjectsOfAGroup, TravelWhereItsTransportWorks) {
  far_device::install();
  const testing_support::TemporaryDirectory dumps;
  Membership membership;
  membership.name = "world";
  membership.world_ranks = {0};
  membership.options.device = far_device::device(1);
  membership.options.flight_recorder_directory = dumps.path();
  membership.progress = std::make_shared<Progress>();
  membership.recorder = std::make_shared<FlightRecorder>(0, 1);
  ProcessGroup group(
      std::make_shared<ProcessGroup::Impl>(std::move(membership), std::make_shared<OnDevice>()));
  EXPECT_EQ(group.size(), 1);
  const std::string object("a\0b", 3);
  const std::vector<std::string> all = {object};
  EXPECT_EQ(items_read([&] { EXPECT_EQ(group.scatter_object(all, 0), object); }), 0);
  EXPECT_EQ(items_read([&] { EXPECT_EQ(group.all_gather_object(object), all); }), 0);
  EXPECT_EQ(items_read([&] { EXPECT_EQ(group.gather_object(object, 0), all); }), 0);
  EXPECT_EQ(items_read([&] { EXPECT_EQ(group.broadcast_object(object, 0), object); }), 1)
      << "the length";
  EXPECT_EQ(message_of<ConfigError>([&] { group.scatter_object({"a", "b"}, 0); }),
            "rank 0: scatter_object: got 2 objects, expected 1, one for each rank");
}

TEST(DeviceGroupsOnOneDevice, WarnInOneLine) {
  testing_support::CapturedLog log;
  EXPECT_EQ(run_far_group(
                2, "auto",
                [](ProcessGroup group) {
                  EXPECT_EQ(group.backend(), "shm");
                  const Tensor tensor = far(values(group.rank()), 0);
                  group.all_reduce(tensor);
                  expect_equal("all_reduce", tensor, values(0) + values(1));
                },
                /*shared=*/0),
            no_errors(2));
  EXPECT_THAT(log.lines(), testing::Contains(HasSubstr(
                               "ranks 0, 1 share a GPU, and their tensors are reduced in host "
                               "memory: NCCL, which is faster, needs a GPU for each rank")));
}

TEST(SharedDevices, AreNamedByTheirRanks) {
  const auto text_of = [](const std::vector<const char*>& gpus) {
    std::vector<PeerInfo> peers;
    for (const char* gpu : gpus) {
      PeerInfo peer;
      peer.gpu = gpu;
      peer.world_rank = static_cast<int>(peers.size());
      peers.push_back(peer);
    }
    return shared_devices(peers);
  };
  EXPECT_EQ(text_of({"a", "b", "a", "c", "b", ""}),
            "ranks 0, 2 share a GPU; ranks 1, 4 share another");
  EXPECT_EQ(text_of({"a", "b"}), "");
  EXPECT_EQ(text_of({"a", "b", "", "b", "b"}), "ranks 1, 3, 4 share a GPU");
  EXPECT_EQ(text_of({"", ""}), "");
}

TEST(CurrentDevice, IsTheGroupsFromTheStart) {
  far_device::install();
  const ProcessGroup alone =
      init_process_group({.device = far_device::device(1), .environment = WorkerEnvironment{}});
  EXPECT_EQ(far_device::current_device(), 1);
  EXPECT_EQ(alone.backend(), "single");
}

TEST(CurrentDevice, MustBeThere) {
  far_device::install();
  const ProcessGroupOptions options{.device = far_device::device(7),
                                    .environment = WorkerEnvironment{}};
  EXPECT_THAT([&] { init_process_group(options); },
              testing::ThrowsMessage<ConfigError>(
                  HasSubstr("device far:7 is not there: this process sees 2 of its type; choose "
                            "one of them, or the CPU")));
}

TEST(FarDevice, FaultsWhereTheHostTouchesItsMemory) {
  far_device::install();
  const Tensor tensor = torch::ones({4}, torch::TensorOptions().device(far_device::device()));
  EXPECT_DEATH((void)*static_cast<volatile const float*>(tensor.const_data_ptr<float>()), "");
}

}  // namespace
}  // namespace lockstep::comm
