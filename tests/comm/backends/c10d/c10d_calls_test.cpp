// The calls that an adapter makes to a library of PyTorch, and what it does with their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/c10d/reduction.h>
#include <lockstep/comm/call/completed_work.h>
#include <lockstep/comm/kernels/plain_memory.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>

namespace lockstep::c10d_adapter {
namespace {

using detail::DataType;
using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::Caller;
using testing_support::message_of;

// Like Gloo and NCCL.
constexpr LibraryReductions kWithoutAverages{
    .averages = false, .bitwise = true, .precise_halves = false, .scatters = false};
constexpr LibraryReductions kWithAverages{
    .averages = true, .bitwise = false, .precise_halves = true, .scatters = true};

// --- Calls ---------------------------------------------------------------------------------------

// Records its calls and leaves the tensors as they are. Every operation is complete.
class RecordingLibrary final : public c10d::Backend {
 public:
  class Ended final : public c10d::Work {
   public:
    Ended() { finish(); }
  };
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  explicit RecordingLibrary(int rank) : c10d::Backend(rank, 2) {}

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return note("broadcast from ", options.rootRank, sizes(tensors), options.timeout);
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return note("allreduce ", op(options.reduceOp), sizes(tensors), options.timeout);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return note("reduce ", op(options.reduceOp), " to ", options.rootRank, sizes(tensors),
                options.timeout);
  }
  WorkPointer _allgather_base(at::Tensor& to, at::Tensor& from,
                              const c10d::AllgatherOptions& options) override {
    return note("allgather", sizes({from}), " ->", sizes({to}), options.timeout);
  }
  WorkPointer gather(Lists& to, Tensors& from, const c10d::GatherOptions& options) override {
    return note("gather to ", options.rootRank, sizes(from), " ->", lists(to), options.timeout);
  }
  WorkPointer scatter(Tensors& to, Lists& from, const c10d::ScatterOptions& options) override {
    return note("scatter from ", options.rootRank, lists(from), " ->", sizes(to), options.timeout);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& to, at::Tensor& from,
                                   const c10d::ReduceScatterOptions& options) override {
    return note("reduce_scatter ", op(options.reduceOp), sizes({from}), " ->", sizes({to}),
                options.timeout);
  }
  WorkPointer alltoall_base(at::Tensor& to, at::Tensor& from, std::vector<int64_t>& to_splits,
                            std::vector<int64_t>& from_splits,
                            const c10d::AllToAllOptions& options) override {
    return note("alltoall", sizes({from}), " [", join(from_splits), "] ->", sizes({to}), " [",
                join(to_splits), "]", options.timeout);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return note("barrier of ", options.device_ids.size(), " devices", options.timeout);
  }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return allocates; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    if (!refusal.empty()) throw std::runtime_error(refusal);
    return torch::full({size}, 7, options);
  }

  std::vector<std::string> calls;
  bool allocates = false;
  std::string refusal;

 private:
  template <class... Parts>
  WorkPointer note(const Parts&... parts) {
    calls.push_back(str(text(parts)...));
    return c10::make_intrusive<Ended>();
  }
  template <class Part>
  static const Part& text(const Part& part) {
    return part;
  }
  static std::string text(const std::chrono::milliseconds& timeout) {
    return str(" in ", timeout.count(), " ms");
  }
  static std::string sizes(const Tensors& tensors) {
    std::string all;
    for (const at::Tensor& tensor : tensors) {
      all += str(' ', tensor.numel(), ' ', c10::toString(tensor.scalar_type()));
    }
    return all;
  }
  static std::string lists(const Lists& lists) {
    return lists.empty() ? " nothing" : sizes(lists.at(0));
  }
  static int op(const c10d::ReduceOp& op) { return static_cast<int>(op.op_); }
};

class QuietContext final : public Context {
 public:
  QuietContext(c10::intrusive_ptr<c10d::Backend> library, const AdapterOptions& options)
      : Context("quiet", std::move(library), c10::make_intrusive<c10d::HashStore>(), options) {
    watch(watchdog_options());
  }

 private:
  void interrupt() override {}
  std::string addition(const std::string&) const override { return ""; }
};

// Ends every collective when it starts.
class PromptBackend final : public C10dBackend {
 public:
  PromptBackend(const std::shared_ptr<QuietContext>& context, const LibraryReductions& reductions)
      : C10dBackend(*context, reductions), context_(context) {}
  std::shared_ptr<Work> collective(const comm::Collective& call,
                                   const std::function<WorkHandle()>& function,
                                   Finish finish) override {
    context_->start({call.description, call.number}, function);
    if (finish) finish();
    return std::make_shared<comm::CompletedWork>();
  }
  std::shared_ptr<Work> send(torch::Tensor, int, comm::MessageTag) override {
    throw Error("not used");
  }
  std::shared_ptr<Work> recv(torch::Tensor, std::optional<int>, comm::MessageTag) override {
    throw Error("not used");
  }

 private:
  const std::shared_ptr<QuietContext> context_;
};

// A rank of two.
struct RecordedRank {
  explicit RecordedRank(int rank, const LibraryReductions& reductions = kWithoutAverages)
      : library(c10::make_intrusive<RecordingLibrary>(rank)),
        caller(std::make_shared<PromptBackend>(
                   std::make_shared<QuietContext>(
                       library, AdapterOptions{.timeout = std::chrono::milliseconds(7000),
                                               .store_rank = -1}),
                   reductions),
               rank, 2) {}
  // The call that the library gets.
  std::vector<std::string> given(CallKind kind, const torch::Tensor& input,
                                 const torch::Tensor& output, ReduceOp op = ReduceOp::kSum,
                                 int root = -1) {
    library->calls.clear();
    const auto work = caller.start(kind, input, output, op, root);
    EXPECT_TRUE(work->is_completed());
    return library->calls;
  }

  const c10::intrusive_ptr<RecordingLibrary> library;
  Caller caller;
};

TEST(LibraryCalls, MoveBytesWithTheRootAndTheTimeoutOfTheGroup) {
  RecordedRank root(1), other(0);
  const auto one = [] { return torch::ones({3}); };
  const auto two = [] { return torch::ones({6}); };
  const torch::Tensor none;
  EXPECT_THAT(root.given(CallKind::kBarrier, none, none),
              ElementsAre("barrier of 0 devices in 7000 ms"));
  EXPECT_THAT(other.given(CallKind::kBroadcast, none, one(), ReduceOp::kSum, 1),
              ElementsAre("broadcast from 1 12 Byte in 7000 ms"));
  EXPECT_THAT(root.given(CallKind::kGather, one(), two(), ReduceOp::kSum, 1),
              ElementsAre("gather to 1 12 Byte -> 12 Byte 12 Byte in 7000 ms"));
  EXPECT_THAT(other.given(CallKind::kGather, one(), none, ReduceOp::kSum, 1),
              ElementsAre("gather to 1 12 Byte -> nothing in 7000 ms"));
  EXPECT_THAT(root.given(CallKind::kScatter, two(), one(), ReduceOp::kSum, 1),
              ElementsAre("scatter from 1 12 Byte 12 Byte -> 12 Byte in 7000 ms"));
  EXPECT_THAT(other.given(CallKind::kScatter, none, one(), ReduceOp::kSum, 1),
              ElementsAre("scatter from 1 nothing -> 12 Byte in 7000 ms"));
  EXPECT_THAT(other.given(CallKind::kAllGather, one(), two()),
              ElementsAre("allgather 12 Byte -> 24 Byte in 7000 ms"));
  EXPECT_THAT(other.given(CallKind::kAllToAll, two(), two()),
              ElementsAre("alltoall 24 Byte [] -> 24 Byte [] in 7000 ms"));
}

TEST(LibraryCalls, ExchangeUnevenPiecesBySplitsInBytes) {
  RecordedRank rank(0);
  comm::Collective call;
  call.description.kind = CallKind::kAllToAll;
  call.description.type = DataType::kFloat32;
  call.description.root = CallDescription::kWithSplits;
  call.input = torch::ones({3});
  call.output = torch::ones({5});
  call.input_splits = {1, 2};
  call.output_splits = {1, 4};
  rank.caller.start(call)->wait();
  EXPECT_THAT(rank.library->calls, ElementsAre("alltoall 12 Byte [4, 8] -> 20 Byte [4, 16] in "
                                               "7000 ms"));
}

TEST(LibraryCalls, ReduceWithTheOperationOfTheLibrary) {
  const torch::Tensor none;
  const auto ones = [](std::int64_t count, torch::ScalarType type = torch::kFloat32) {
    return torch::ones({count}, type);
  };
  const auto half = ReduceOp::premultiplied_sum(0.5);
  RecordedRank sums(0), means(0, kWithAverages), root(1);
  EXPECT_THAT(sums.given(CallKind::kAllReduce, none, ones(3), ReduceOp::kAverage),
              ElementsAre("allreduce 0 3 Float in 7000 ms"));
  EXPECT_THAT(means.given(CallKind::kAllReduce, none, ones(3), ReduceOp::kAverage),
              ElementsAre("allreduce 1 3 Float in 7000 ms"));
  EXPECT_THAT(sums.given(CallKind::kAllReduce, none, ones(3, torch::kBool), ReduceOp::kSum),
              ElementsAre("allreduce 4 3 Byte in 7000 ms"));
  EXPECT_THAT(sums.given(CallKind::kReduce, ones(3), none, ReduceOp::kProduct, 1),
              ElementsAre("reduce 2 to 1 3 Float in 7000 ms"));
  EXPECT_THAT(means.given(CallKind::kReduceScatter, ones(6), ones(3), half),
              ElementsAre("reduce_scatter 0 6 Float -> 3 Float in 7000 ms"));
  EXPECT_THAT(means.given(CallKind::kReduceScatter, ones(6, torch::kBool), ones(3, torch::kBool)),
              ElementsAre("reduce_scatter 4 6 Byte -> 3 Byte in 7000 ms"));
  EXPECT_THAT(sums.given(CallKind::kReduceScatter, ones(6), ones(3)),
              ElementsAre("alltoall 24 Byte [] -> 24 Byte [] in 7000 ms"))
      << "its own would send all data to all ranks";
  EXPECT_THAT(sums.given(CallKind::kAllReduce, none, ones(3), ReduceOp::kMax),
              ElementsAre("allgather 12 Byte -> 24 Byte in 7000 ms"));
  EXPECT_THAT(sums.given(CallKind::kReduce, ones(3), none, ReduceOp::kMin, 1),
              ElementsAre("gather to 1 12 Byte -> nothing in 7000 ms"));
  EXPECT_THAT(root.given(CallKind::kReduce, ones(3), ones(3), ReduceOp::kMin, 1),
              ElementsAre("gather to 1 12 Byte -> 12 Byte 12 Byte in 7000 ms"));
}

// Only the root's output may change, and no input, which may be the root's output.
TEST(LibraryCalls, LeaveTheInputsOfAReductionAlone) {
  RecordedRank root(1);
  const auto input = torch::full({3}, 8.0F), output = torch::zeros({3});
  root.given(CallKind::kReduce, input, output, ReduceOp::kAverage, 1);
  EXPECT_TRUE(input.equal(torch::full({3}, 8.0F)));
  EXPECT_TRUE(output.equal(torch::full({3}, 4.0F)));
  root.given(CallKind::kReduce, input, input, ReduceOp::kAverage, 1);
  EXPECT_TRUE(input.equal(torch::full({3}, 4.0F)));
  RecordedRank means(0, kWithAverages);
  const auto given = torch::full({6}, 8.0F);
  means.given(CallKind::kReduceScatter, given, torch::zeros({3}), ReduceOp::premultiplied_sum(0.5));
  EXPECT_TRUE(given.equal(torch::full({6}, 8.0F)));
}

TEST(LibraryCalls, OfNothingAreMadeByNobody) {
  RecordedRank rank(0);
  EXPECT_THAT(rank.given(CallKind::kAllReduce, {}, torch::ones({0})), IsEmpty());
  EXPECT_THAT(rank.given(CallKind::kBarrier, {}, {}), ElementsAre("barrier of 0 devices in 7000 "
                                                                  "ms"));
  rank.caller.backend->abort("enough");
  EXPECT_EQ(
      message_of<CommError>([&] { rank.caller.start(CallKind::kAllReduce, {}, torch::ones({0})); }),
      "enough");
  comm::Collective send;
  send.description.kind = CallKind::kSend;
  send.description.count = 1;
  EXPECT_EQ(message_of<InternalError>([&] { RecordedRank(0).caller.start(send); }),
            "send is not a collective");
}

// --- Memory --------------------------------------------------------------------------------------

TEST(LibraryMemory, IsUsedWhereTheLibraryHasSome) {
  RecordedRank rank(0);
  const auto allocate = [&] { return rank.caller.backend->allocate({2, 3}, torch::kFloat64); };
  const auto expect_zeros = [&](const torch::Tensor& memory) {
    EXPECT_TRUE(memory.equal(torch::zeros({2, 3}, torch::kFloat64)));
  };
  expect_zeros(allocate());
  rank.library->allocates = true;
  expect_zeros(allocate());
  rank.library->refusal = "the driver is too old\nfor memory";
  const testing_support::CapturedLog log;
  set_log_level(LogLevel::kInfo);
  expect_zeros(allocate());
  set_log_level(LogLevel::kWarning);
  EXPECT_THAT(log.lines(), testing::Contains(testing::HasSubstr(
                               "allocate: quiet cannot allocate memory of its own (the driver is "
                               "too old); using plain memory, which it copies")));
}

// Every backend's allocate() makes its memory in this way.
TEST(PlainMemory, IsZeroedOrRefusedInOneLine) {
  const torch::TensorOptions options = torch::TensorOptions().dtype(torch::kFloat64);
  EXPECT_EQ(comm::bytes_to_allocate({2, 3}, torch::kFloat64), 48U);
  EXPECT_EQ(comm::bytes_to_allocate({}, torch::kInt16), 2U);
  EXPECT_EQ(comm::bytes_to_allocate({0, 3}, torch::kInt16), 0U);
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{-1}, {2, -3}, {huge}, {huge, huge}}) {
    EXPECT_EQ(message_of<ConfigError>([&] { comm::bytes_to_allocate(shape, torch::kFloat64); }),
              lockstep::str("allocate: no tensor has the shape ", at::IntArrayRef(shape)));
  }
  EXPECT_TRUE(comm::zeroed_memory({2, 3}, options).equal(torch::zeros({2, 3}, options)));
  const auto made = torch::zeros({6}, options);
  EXPECT_TRUE(comm::zeroed_memory({6}, options, [&] { return made; }).is_same(made));
  EXPECT_EQ(message_of<ConfigError>([&] {
              comm::zeroed_memory({2, 3}, options, []() -> torch::Tensor {
                TORCH_CHECK(false, "the device is full");
                return {};
              });
            }),
            "allocate: no memory for 48 bytes: the device is full");
}

// --- Failures ------------------------------------------------------------------------------------

// A refusal by Lockstep's own code ends nothing.
TEST(LibraryFailures, OfOurOwnPassThrough) {
  const auto context = std::make_shared<QuietContext>(
      c10::make_intrusive<RecordingLibrary>(0),
      AdapterOptions{.timeout = std::chrono::milliseconds(7000), .store_rank = -1});
  EXPECT_EQ(message_of<ConfigError>([&] {
              context->start({}, []() -> WorkHandle { throw ConfigError("no such tag"); });
            }),
            "no such tag");
  context->watchdog().throw_if_ended();
}

}  // namespace
}  // namespace lockstep::c10d_adapter
