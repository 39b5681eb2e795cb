// Results of operations in streams of a device: each stream that waits for an operation sees its
// complete result.
#include <gtest/gtest.h>

#include <memory>

#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/group_work.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/comm/backends/stream_library.h>
#include <tests/support/far_device/far_device.h>

namespace lockstep::comm {
namespace {

using testing_support::Caller;
using testing_support::StreamLibrary;
using torch::Tensor;
namespace far_device = testing_support::far_device;

// Rank 0 of two, over a library that leaves the root's own input as the result of an operation.
struct DeviceRank {
  DeviceRank()
      : library(c10::make_intrusive<StreamLibrary>(0, 2)),
        caller(nccl::adapt(library, c10::make_intrusive<c10d::HashStore>(),
                           {.timeout = std::chrono::seconds(600), .device = far_device::device()}),
               0, 2) {}

  // The result is a copy that the first wait queues.
  std::shared_ptr<Work> reduce(const Tensor& input, const Tensor& output) {
    auto work = caller.start(CallKind::kReduce, input, output, ReduceOp::kSum, /*root=*/0);
    run_this_stream();
    return work;
  }

  // Runs the current stream's work. The stream of a real library would wait for it.
  static void run_this_stream() { torch::zeros({1}).to(far_device::device()).cpu(); }

  const c10::intrusive_ptr<StreamLibrary> library;
  Caller caller;
};

Tensor far(const Tensor& tensor) { return tensor.to(far_device::device()); }

// Reads the tensor in a new stream after `join`. Streams of the far device run only work for which
// a thread waits.
template <class Join>
Tensor read_in_new_stream(const Tensor& tensor, Join&& join) {
  const c10::StreamGuard guard(far_device::new_stream());
  join();
  return tensor.cpu();
}

class EveryStream : public testing::Test {
 protected:
  EveryStream() { far_device::install(); }
};

TEST_F(EveryStream, WaitsForWhatFinishesTheResult) {
  DeviceRank rank;
  const Tensor expected = torch::arange(4.0F);
  const Tensor output = far(torch::zeros({4}));
  const auto work = rank.reduce(far(expected), output);
  {
    const c10::StreamGuard first(far_device::new_stream());
    work->wait();
  }
  const Tensor read = read_in_new_stream(output, [&] { work->wait(); });
  EXPECT_TRUE(torch::equal(read, expected)) << read;
}

TEST_F(EveryStream, WaitsForWhatFinishesTheResultWhenItOnlyAsks) {
  DeviceRank rank;
  const Tensor expected = torch::arange(4.0F);
  const Tensor output = far(torch::zeros({4}));
  const auto work = rank.reduce(far(expected), output);
  rank.library->work(0)->end();
  {
    const c10::StreamGuard first(far_device::new_stream());
    EXPECT_TRUE(work->is_completed());
  }
  const Tensor read = read_in_new_stream(output, [&] { EXPECT_TRUE(work->is_completed()); });
  EXPECT_TRUE(torch::equal(read, expected)) << read;
}

// The host frees the copy before the waiting stream has read it.
TEST_F(EveryStream, IsKnownToTheAllocatorOfTheMemoryThatItReads) {
  DeviceRank rank;
  const auto work = rank.reduce(far(torch::ones({4})), far(torch::zeros({4})));
  const auto before = far_device::recorded_streams();
  work->wait();
  EXPECT_EQ(far_device::recorded_streams(), before + 1);
  work->wait();
  EXPECT_EQ(far_device::recorded_streams(), before + 1);
}

// GroupWork makes such a copy, for example, to a tensor that is not contiguous.
TEST_F(EveryStream, WaitsForACopyOfTheResultToItsPlace) {
  const Tensor result = far(torch::arange(6.0F));
  const Tensor place = far(torch::zeros({3, 2})).t();
  DeviceRank::run_this_stream();
  const auto log = std::make_shared<CallLog>(std::make_shared<FlightRecorder>(0, 1), "", "test",
                                             std::vector<int>{0});
  GroupWork work(std::make_shared<WorkList>(std::vector<std::shared_ptr<Work>>{}),
                 {{place, result.view({2, 3})}}, log, {}, /*runs_on_stream=*/false);
  const auto before = far_device::recorded_streams();
  {
    const c10::StreamGuard first(far_device::new_stream());
    work.wait(std::nullopt);
  }
  EXPECT_EQ(far_device::recorded_streams(), before + 1);
  const Tensor expected = torch::arange(6.0F).view({2, 3});
  const Tensor waited = read_in_new_stream(place, [&] { work.wait(std::nullopt); });
  EXPECT_TRUE(torch::equal(waited, expected)) << waited;
}

}  // namespace
}  // namespace lockstep::comm
