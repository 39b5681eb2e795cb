// The words for a call, the names of algorithms and backends, and the choice of an algorithm.
#include <lockstep/comm/call/description.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/algorithms/choice.h>
#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/comm/call/backend_traits.h>
#include <lockstep/comm/call/message_tag.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;

// A call with four float32 numbers.
CallDescription plain_call(CallKind kind, int root = -1) {
  CallDescription call;
  call.kind = kind;
  call.type = detail::DataType::kFloat32;
  call.count = 4;
  call.shape = {1, {4}};
  call.root = root;
  return call;
}

CallDescription reducing_call(CallKind kind, ReduceOp op, int root = -1) {
  CallDescription call = plain_call(kind, root);
  call.op = op;
  return call;
}

TEST(Description, NamesEveryKindOfCall) {
  const std::pair<CallDescription, const char*> cases[] = {
      {plain_call(CallKind::kBarrier), "barrier"},
      {plain_call(CallKind::kBroadcast, 1), "broadcast[float32, 4, root 1]"},
      {plain_call(CallKind::kReduce, 0), "reduce[float32, 4, root 0]"},
      {plain_call(CallKind::kAllReduce), "all_reduce[float32, 4]"},
      {plain_call(CallKind::kGather, 2), "gather[float32, 4, root 2]"},
      {plain_call(CallKind::kAllGather), "all_gather[float32, 4]"},
      {plain_call(CallKind::kScatter, 3), "scatter[float32, 4, root 3]"},
      {plain_call(CallKind::kReduceScatter), "reduce_scatter[float32, 4]"},
      {plain_call(CallKind::kAllToAll), "all_to_all[float32, 4]"},
      {plain_call(CallKind::kAllToAll, CallDescription::kWithSplits),
       "all_to_all[float32, with splits]"},
      {plain_call(CallKind::kSend, 3), "send[float32, 4, to rank 3]"},
      {plain_call(CallKind::kRecv, 0), "recv[float32, 4, from rank 0]"},
      {plain_call(CallKind::kRecv), "recv[float32, 4, from any rank]"},
  };
  for (const auto& [call, text] : cases) EXPECT_EQ(describe(call), text);
}

TEST(Description, NamesWhatAReductionDoes) {
  EXPECT_EQ(describe(reducing_call(CallKind::kReduce, ReduceOp::kAverage, 0)),
            "reduce[float32, 4, average, root 0]");
  EXPECT_EQ(describe(reducing_call(CallKind::kReduceScatter, ReduceOp::kBitwiseXor)),
            "reduce_scatter[float32, 4, bitwise xor]");
  EXPECT_EQ(describe(reducing_call(CallKind::kAllReduce, ReduceOp::premultiplied_sum(0.5))),
            "all_reduce[float32, 4, premultiplied sum by 0.5]");
  const std::pair<ReduceOp, const char*> operations[] = {{ReduceOp::kProduct, "product"},
                                                         {ReduceOp::kMin, "min"},
                                                         {ReduceOp::kBitwiseAnd, "bitwise and"},
                                                         {ReduceOp::kBitwiseOr, "bitwise or"}};
  for (const auto& [op, name] : operations) {
    EXPECT_EQ(describe(reducing_call(CallKind::kAllReduce, op)),
              str("all_reduce[float32, 4, ", name, "]"));
  }
  CallDescription by_ring = reducing_call(CallKind::kAllReduce, ReduceOp::kMax);
  by_ring.algorithm = Algorithm::kRing;
  EXPECT_EQ(describe(by_ring), "all_reduce[float32, 4, max, by ring]");
  EXPECT_EQ(describe(reducing_call(CallKind::kAllGather, ReduceOp::kMax)), "all_gather[float32, 4]")
      << "nothing is reduced";
}

TEST(Description, ShowsTheShape) {
  const auto shown = [](const Shape& shape) {
    CallDescription call = plain_call(CallKind::kAllGather);
    call.shape = shape;
    return describe(call);
  };
  EXPECT_EQ(shown({0, {}}), "all_gather[float32, 4]") << "the number of elements";
  EXPECT_EQ(shown({2, {2, 3}}), "all_gather[float32, 2x3]");
  EXPECT_EQ(shown({6, {1, 2, 3, 4, 5, 6}}), "all_gather[float32, 1x2x3x4x5x6]");
  EXPECT_EQ(shown({7, {1, 2, 3, 4, 5, 6}}), "all_gather[float32, 1x2x3x4x5x6x...]");
  EXPECT_EQ(shown({4, {2, 4, 5, 3}, true}), "all_gather[float32, 2x4x5x3 channels_last]");
}

// From the list of test vectors of its authors (isthe.com/chongo/tech/comp/fnv).
TEST(Description, HasTheFingerprintOfItsText) {
  EXPECT_EQ(fingerprint(""), 0x811C9DC5U);
  EXPECT_EQ(fingerprint("a"), 0xE40C292CU);
  EXPECT_EQ(fingerprint("foobar"), 0xBF9CF968U);
  EXPECT_NE(fingerprint("\xFF"), fingerprint("\x7F"));
}

TEST(AlgorithmNames, LeadToTheirAlgorithms) {
  EXPECT_THAT(algorithm_names(), ElementsAre("auto", "native", "reduce-broadcast", "all-to-all",
                                             "ring", "halving-doubling", "tree"));
  for (const Algorithm algorithm : all_algorithms()) {
    EXPECT_EQ(algorithm_from_name(algorithm_name(algorithm)), algorithm);
  }
  EXPECT_EQ(algorithm_from_name("star"), std::nullopt);
  EXPECT_EQ(algorithm_from_name(""), std::nullopt);
}

TEST(AlgorithmChoice, ChangesAtAMebibyteOfGatheredData) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  for (const int ranks : {1, 2, 3, 4, 64}) {
    const std::size_t most = kMebibyte / static_cast<std::size_t>(ranks);
    EXPECT_EQ(choose_algorithm(/*gathers=*/true, ranks, most), Algorithm::kNative) << ranks;
    EXPECT_EQ(choose_algorithm(/*gathers=*/true, ranks, most + 1),
              ranks == 2 ? Algorithm::kAllToAll : Algorithm::kRing)
        << ranks;
  }
}

TEST(AlgorithmChoice, HasChunksThatFitIntoACache) {
  const BackendTraits fast;
  const BackendTraits slow{.slow_messages = true};
  const auto bytes = [&](Algorithm algorithm, const BackendTraits& traits, int size) {
    const std::size_t chunk = default_chunk(algorithm, traits, size, 8);
    EXPECT_EQ(default_chunk(algorithm, traits, size, 2), 4 * chunk);
    return 8 * chunk;
  };
  constexpr std::size_t kKibibyte = 1024;
  for (const BackendTraits& traits : {fast, slow}) {
    EXPECT_EQ(bytes(Algorithm::kAllToAll, traits, 1), 8192 * kKibibyte);
    EXPECT_EQ(bytes(Algorithm::kAllToAll, traits, 2), 8192 * kKibibyte);
    EXPECT_EQ(bytes(Algorithm::kAllToAll, traits, 9), 1024 * kKibibyte);
    EXPECT_EQ(bytes(Algorithm::kAllToAll, traits, 33), 256 * kKibibyte);
    EXPECT_EQ(bytes(Algorithm::kAllToAll, traits, 65), 256 * kKibibyte) << "not less";
    EXPECT_EQ(bytes(Algorithm::kRing, traits, 4), 0U) << "no chunks";
  }
  EXPECT_EQ(bytes(Algorithm::kTree, fast, 4), 256 * kKibibyte);
  EXPECT_EQ(bytes(Algorithm::kTree, slow, 4), 4096 * kKibibyte);
}

TEST(BackendNames, HaveTheirProperties) {
  EXPECT_THAT(backend_names(), ElementsAre("auto", "shm", "gloo", "nccl", "hierarchical"));
  EXPECT_THAT(host_backend_names(), ElementsAre("auto", "shm", "gloo", "hierarchical"));
  for (const std::string& name : backend_names()) {
    const NamedBackend& backend = named_backend(name);
    EXPECT_EQ(backend.name, name);
    EXPECT_EQ(backend.needs_gpu, name == "nccl") << name;
    EXPECT_EQ(backend.has_symmetric_memory, name != "gloo") << name;
    EXPECT_EQ(backend.runs_on_stream, name == "auto" || name == "nccl") << name;
  }
  EXPECT_THROW(named_backend("mpi"), InternalError);
}

}  // namespace
}  // namespace lockstep::comm
