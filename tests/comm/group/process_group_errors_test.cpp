// Errors of wrong calls and of failing groups: their messages, and the ranks that throw them. Ranks
// are threads.
#include <lockstep/comm/group/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cctype>
#include <cmath>
#include <latch>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using namespace testing_support;

struct WrongCall {
  const char* name;
  std::function<void(ProcessGroup&)> call;  // called on rank 1 of 2
  const char* expected;
};

using Splits = std::vector<std::int64_t>;

torch::Tensor ones(std::int64_t count, torch::ScalarType type = torch::kFloat32) {
  return torch::ones({count}, type);
}

const std::vector<WrongCall> kWrongCalls = {
    {"Undefined", [](auto& g) { g.all_reduce(torch::Tensor()); },
     "rank 1: all_reduce: tensor is undefined; give a tensor"},
    {"Sparse", [](auto& g) { g.all_reduce(torch::eye(3).to_sparse()); }, "expected a dense tensor"},
    {"Expanded", [](auto& g) { g.all_reduce(ones(1).expand({4})); }, "clone() it first"},
    {"AverageOfIntegers", [](auto& g) { g.all_reduce(ones(3, torch::kInt64), ReduceOp::kAverage); },
     "rank 1: all_reduce: the average of int64 is not defined"},
    {"BitsOfFloats", [](auto& g) { g.reduce(ones(3), 0, ReduceOp::kBitwiseXor); },
     "rank 1: reduce: the bitwise xor of float32 is not defined"},
    {"ProductOfComplex",
     [](auto& g) { g.all_reduce(ones(3, torch::kComplexFloat), ReduceOp::kProduct); },
     "rank 1: all_reduce: the product of complex64 is not defined"},
    {"AverageOfBytes", [](auto& g) { g.reduce(ones(3, torch::kUInt8), 1, ReduceOp::kAverage); },
     "rank 1: reduce: the average of uint8 is not defined"},
    {"MinOfComplexDouble",
     [](auto& g) { g.reduce(ones(3, torch::kComplexDouble), 0, ReduceOp::kMin); },
     "rank 1: reduce: the min of complex128 is not defined"},
    {"RootTooLarge", [](auto& g) { g.broadcast(ones(3), 2); },
     "rank 1: broadcast: root must be from 0 to 1, got 2"},
    {"RootNegative", [](auto& g) { g.gather(ones(3), {}, -1); },
     "rank 1: gather: root must be from 0 to 1, got -1"},
    {"ObjectRoot", [](auto& g) { g.gather_object("a", 5); },
     "rank 1: gather_object: root must be from 0 to 1, got 5"},
    {"TooFewOutputs", [](auto& g) { g.all_gather({ones(3)}, ones(3)); },
     "rank 1: all_gather: outputs has 1 tensors, expected 2, one for each rank"},
    {"ShapeOfAnOutput", [](auto& g) { g.all_gather({ones(4), ones(3)}, ones(4)); },
     "rank 1: all_gather: outputs[1] has shape [3], expected [4] like the input"},
    {"TypeOfAnOutput", [](auto& g) { g.all_gather({ones(4, torch::kInt8), ones(4)}, ones(4)); },
     "rank 1: all_gather: outputs[0] is int8 on cpu, expected float32 on cpu like the input"},
    {"SizeOfTheOutput", [](auto& g) { g.all_gather_into_tensor(ones(7), ones(4)); },
     "rank 1: all_gather_into_tensor: output has 7 elements, expected 8, 2 ranks times those of "
     "the input"},
    {"LongOutput", [](auto& g) { g.all_gather_into_tensor(ones(9), ones(4)); },
     "rank 1: all_gather_into_tensor: output has 9 elements, expected 8, 2 ranks times those of "
     "the input"},
    {"TypeOfTheOutput", [](auto& g) { g.all_gather_into_tensor(ones(8, torch::kInt32), ones(4)); },
     "output is int32 on cpu, expected float32 on cpu like the input"},
    {"OutputsNotOnTheRoot", [](auto& g) { g.gather(ones(3), {ones(3), ones(3)}, 0); },
     "rank 1: gather: outputs has 2 tensors, expected none on a rank that is not the root"},
    {"InputsNotOnTheRoot", [](auto& g) { g.scatter(ones(3), {ones(3)}, 0); },
     "rank 1: scatter: inputs has 1 tensors, expected none on a rank that is not the root"},
    {"InputOfReduceScatter", [](auto& g) { g.reduce_scatter_tensor(ones(3), ones(5)); },
     "rank 1: reduce_scatter_tensor: input has 5 elements, expected 6, 2 ranks times those of the "
     "output"},
    {"LongInputOfReduceScatter", [](auto& g) { g.reduce_scatter_tensor(ones(3), ones(7)); },
     "rank 1: reduce_scatter_tensor: input has 7 elements, expected 6, 2 ranks times"},
    {"RowsNotDivisible", [](auto& g) { g.all_to_all_single(ones(3), ones(3)); },
     "rank 1: all_to_all_single: input has 3 rows, expected a multiple of the 2 ranks; or give "
     "splits"},
    {"NumberOfSplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {3}, {1, 2}); },
     "rank 1: all_to_all_single: output_splits has 1 numbers, expected 2, one for each rank"},
    {"SumOfSplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 2}, {1, 1}); },
     "rank 1: all_to_all_single: input_splits sum to 2, expected 3, the rows of input"},
    {"NegativeSplit", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {4, -1}, {1, 2}); },
     "rank 1: all_to_all_single: output_splits has -1, expected at least 0"},
    {"OwnPiece", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 2}, {2, 1}); },
     "rank 1: all_to_all_single: gives itself 1 elements and expects 2"},
    {"ScalarInput", [](auto& g) { g.all_to_all_single(torch::tensor(1.0), torch::tensor(1.0)); },
     "input has no dimension 0 to cut along"},
    {"ToItself", [](auto& g) { g.send(ones(3), 1); },
     "rank 1: send: peer is rank 1 of the group, this rank itself"},
    {"PeerTooLarge", [](auto& g) { g.recv(ones(3), 2); },
     "rank 1: recv: peer must be from 0 to 1, got 2"},
    {"PeerNegative", [](auto& g) { g.send(ones(3), -1); },
     "rank 1: send: peer must be from 0 to 1, got -1"},
    {"NegativeTag", [](auto& g) { g.send(ones(3), 0, -1); },
     "rank 1: send: tag must be at least 0, got -1"},
    {"NegativeTagOfAny", [](auto& g) { g.recv(ones(3), std::nullopt, -2); },
     "tag must be at least 0, got -2"},
    {"BatchWithOneWrong",
     [](auto& g) {
       g.batch_isend_irecv({{P2POp::Kind::kSend, ones(3), 0}, {P2POp::Kind::kRecv, ones(3), 3}});
     },
     "peer must be from 0 to 1, got 3"},
    {"BatchToNobody", [](auto& g) { g.batch_isend_irecv({{P2POp::Kind::kSend, ones(3), -1}}); },
     "rank 1: send: peer must be from 0 to 1, got -1"},
    // Unlike irecv() without a source, -1 does not mean any source.
    {"BatchFromNobody", [](auto& g) { g.batch_isend_irecv({{P2POp::Kind::kRecv, ones(3), -1}}); },
     "rank 1: recv: peer must be from 0 to 1, got -1"},
    {"WithoutMemory",
     [](auto& g) { g.all_reduce(torch::ones({3}, torch::TensorOptions().device(torch::kMeta))); },
     "rank 1: all_reduce: tensor is sparse, quantized or without memory"},
    {"AverageOfIntegersInAList",
     [](auto& g) { g.all_reduce_coalesced({ones(3), ones(3, torch::kInt64)}, ReduceOp::kAverage); },
     "rank 1: all_reduce_coalesced: the average of int64 is not defined"},
    {"UndefinedInAList", [](auto& g) { g.broadcast_coalesced({ones(3), torch::Tensor()}, 0); },
     "rank 1: broadcast_coalesced: tensors[1] is undefined"},
    {"RootOfReduce", [](auto& g) { g.reduce(ones(3), 2); },
     "rank 1: reduce: root must be from 0 to 1, got 2"},
    {"RootOfScatter", [](auto& g) { g.scatter(ones(3), {}, -1); },
     "rank 1: scatter: root must be from 0 to 1, got -1"},
    {"RootOfAList", [](auto& g) { g.broadcast_coalesced({ones(3)}, 2); },
     "rank 1: broadcast_coalesced: root must be from 0 to 1, got 2"},
    {"TooFewOutputsOnTheRoot", [](auto& g) { g.gather(ones(3), {ones(3)}, 1); },
     "rank 1: gather: outputs has 1 tensors, expected 2, one for each rank"},
    {"ShapeOfAnInputOnTheRoot", [](auto& g) { g.scatter(ones(3), {ones(3), ones(4)}, 1); },
     "rank 1: scatter: inputs[1] has shape [4], expected [3] like the output"},
    {"TooManyInputs", [](auto& g) { g.reduce_scatter(ones(3), {ones(3), ones(3), ones(3)}); },
     "rank 1: reduce_scatter: inputs has 3 tensors, expected 2, one for each rank"},
    {"TypeOfAnInput",
     [](auto& g) { g.reduce_scatter(ones(3), {ones(3), ones(3, torch::kFloat64)}); },
     "rank 1: reduce_scatter: inputs[1] is float64 on cpu, expected float32 on cpu like the "
     "output"},
    {"TypeOfReduceScatter",
     [](auto& g) { g.reduce_scatter_tensor(ones(3, torch::kInt32), ones(6)); },
     "rank 1: reduce_scatter_tensor: output is int32 on cpu, expected float32 on cpu"},
    {"TooFewInAllToAll", [](auto& g) { g.all_to_all({ones(1)}, {ones(1), ones(1)}); },
     "rank 1: all_to_all: outputs has 1 tensors, expected 2, one for each rank"},
    {"TooManyInAllToAll",
     [](auto& g) { g.all_to_all({ones(1), ones(1), ones(1)}, {ones(1), ones(1)}); },
     "rank 1: all_to_all: outputs has 3 tensors, expected 2, one for each rank"},
    {"NothingInAllToAll", [](auto& g) { g.all_to_all({ones(1), ones(1)}, {}); },
     "rank 1: all_to_all: inputs has 0 tensors, expected 2, one for each rank"},
    {"UndefinedInAllToAll",
     [](auto& g) { g.all_to_all({ones(1), ones(1)}, {torch::Tensor(), ones(1)}); },
     "rank 1: all_to_all: inputs[0] is undefined; give a tensor"},
    {"TypesInAllToAll",
     [](auto& g) { g.all_to_all({ones(1), ones(1, torch::kInt8)}, {ones(1), ones(1)}); },
     "rank 1: all_to_all: outputs[1] is int8 on cpu, expected float32 on cpu like inputs[0]"},
    {"TypesOfInputsInAllToAll",
     [](auto& g) { g.all_to_all({ones(1), ones(1)}, {ones(1), ones(1, torch::kInt8)}); },
     "rank 1: all_to_all: inputs[1] is int8 on cpu, expected float32 on cpu like inputs[0]"},
    {"OwnPieceInAllToAll", [](auto& g) { g.all_to_all({ones(1), ones(2)}, {ones(2), ones(1)}); },
     "rank 1: all_to_all: gives itself 1 elements and expects 2"},
    {"OwnPieceOfComplexNumbers",
     [](auto& g) {
       const auto numbers = [](std::int64_t count) { return ones(count, torch::kComplexFloat); };
       g.all_to_all({numbers(1), numbers(2)}, {numbers(2), numbers(1)});
     },
     "rank 1: all_to_all: gives itself 1 elements and expects 2"},
    {"OwnRowOfComplexNumbers",
     [](auto& g) {
       const auto rows = torch::ones({3, 2}, torch::kComplexDouble);
       g.all_to_all_single(torch::ones_like(rows), rows, {1, 2}, {2, 1});
     },
     "rank 1: all_to_all_single: gives itself 2 elements and expects 4"},
    {"RowsOfTheOutput", [](auto& g) { g.all_to_all_single(ones(3), ones(4)); },
     "rank 1: all_to_all_single: output has 3 rows, expected a multiple of the 2 ranks"},
    {"MoreThanTheInput", [](auto& g) { g.all_to_all_single(ones(4), ones(2)); },
     "rank 1: all_to_all_single: output has 4 elements, expected 2 like the input"},
    {"LessThanTheInput", [](auto& g) { g.all_to_all_single(ones(2), ones(4)); },
     "rank 1: all_to_all_single: output has 2 elements, expected 4 like the input"},
    {"TypeOfAllToAllSingle", [](auto& g) { g.all_to_all_single(ones(4, torch::kInt8), ones(4)); },
     "rank 1: all_to_all_single: output is int8 on cpu, expected float32 on cpu like the input"},
    {"ScalarOutput", [](auto& g) { g.all_to_all_single(ones(1).squeeze(), ones(2)); },
     "rank 1: all_to_all_single: output has no dimension 0 to cut along"},
    {"TooManySplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 1, 1}, {1, 2}); },
     "rank 1: all_to_all_single: output_splits has 3 numbers, expected 2, one for each rank"},
    {"LargeSplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 2}, {2, 2}); },
     "rank 1: all_to_all_single: input_splits sum to 4, expected 3, the rows of input"},
    {"NumberOfInputSplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 2}, {3}); },
     "rank 1: all_to_all_single: input_splits has 1 numbers, expected 2, one for each rank"},
    {"SumOfOutputSplits", [](auto& g) { g.all_to_all_single(ones(3), ones(3), {1, 1}, {1, 2}); },
     "rank 1: all_to_all_single: output_splits sum to 2, expected 3, the rows of output"},
    {"TagOfTheLibrary", [](auto& g) { g.recv(ones(3), 0, -1); },
     "rank 1: recv: tag must be at least 0, got -1; negative ones are the library's own"},
    {"FromItself", [](auto& g) { g.recv(ones(3), 1); },
     "rank 1: recv: peer is rank 1 of the group, this rank itself"},
    {"EmptyGroup", [](auto& g) { g.new_group({}); }, "rank 1: new_group: ranks is empty"},
    {"GroupWithTwins", [](auto& g) { g.new_group({0, 0}); },
     "rank 1: new_group: ranks must be different and from 0 to 1, got 0, 0"},
    {"GroupWithAStranger", [](auto& g) { g.new_group({0, 2}); },
     "rank 1: new_group: ranks must be different and from 0 to 1, got 0, 2"},
    {"GroupWithNobody", [](auto& g) { g.new_group({-1}); },
     "rank 1: new_group: ranks must be different and from 0 to 1, got -1"},
};

TEST(ProcessGroupErrors, AWrongCallIsRefusedAndTheGroupGoesOn) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    for (const WrongCall& wrong : kWrongCalls) {
      if (group.rank() != 1) continue;
      EXPECT_THAT(testing_support::message_of<ConfigError>([&] { wrong.call(group); }),
                  HasSubstr(wrong.expected))
          << wrong.name;
    }
    auto tensor = torch::ones({3});
    group.all_reduce(tensor);
    EXPECT_EQ(tensor.sum().item<float>(), 6);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Only the root can see that its list is wrong.
TEST(ProcessGroupErrors, AWrongNumberOfObjectsIsToldToAllRanks) {
  const auto errors = run_group(3, "shm", [](ProcessGroup group) {
    const std::vector<std::string> objects(group.rank() == 1 ? 2 : 0, "object");
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { group.scatter_object(objects, 1); }),
              "rank 1: scatter_object: got 2 objects, expected 3, one for each rank");
    EXPECT_EQ(group.scatter_object({"a", "", "c"}, 1),
              (std::vector<std::string>{"a", "", "c"})[static_cast<std::size_t>(group.rank())]);
  });
  EXPECT_EQ(errors, no_errors(3));
}

// Runs `call` on two ranks. Each stays in the group until both have failed.
std::vector<std::string> errors_of_two(const std::string& backend,
                                       const std::function<void(ProcessGroup&)>& call) {
  std::barrier both(2);
  return run_group(2, backend, [&](ProcessGroup group) {
    try {
      group.barrier();
      call(group);
    } catch (...) {
      both.arrive_and_wait();
      throw;
    }
    both.arrive_and_wait();
  });
}

struct Mismatch {
  const char* name;
  std::function<void(ProcessGroup&)> call;
  std::vector<const char*> expected;  // in the errors of both ranks
};

// Both ranks give 32 bytes.
void gather_two_types(ProcessGroup& group) {
  const bool first = group.rank() == 0;
  const auto type = first ? torch::kComplexFloat : torch::kComplexDouble;
  group.all_gather_into_tensor(ones(first ? 8 : 4, type), ones(first ? 4 : 2, type));
}

class Mismatches : public ::testing::TestWithParam<std::tuple<std::string, Mismatch>> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, Mismatches,
    ::testing::Combine(
        ::testing::Values("shm", "gloo", "hierarchical"),
        ::testing::Values(
            Mismatch{"Shape",
                     [](auto& g) { g.all_reduce(torch::ones({4 + g.rank()})); },
                     {"all_reduce[float32, 4]", "all_reduce[float32, 5]"}},
            Mismatch{"Type",
                     [](auto& g) {
                       g.all_reduce(ones(4, g.rank() == 0 ? torch::kFloat32 : torch::kInt32));
                     },
                     {"all_reduce[float32, 4]", "all_reduce[int32, 4]"}},
            Mismatch{"Nothing on one rank",
                     [](auto& g) {
                       for (int i = 0; i < 3; ++i)
                         g.all_reduce(torch::ones({i == 0 ? 4 * g.rank() : 4}));
                     },
                     {"all_reduce[float32, 0]", "all_reduce[float32, 4]"}},
            Mismatch{"Order of dimensions",
                     [](auto& g) {
                       auto tensor = torch::ones({2, 3, 4, 5});
                       if (g.rank() == 1)
                         tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
                       g.all_reduce(tensor);
                     },
                     {"2x3x4x5", "2x4x5x3"}},
            Mismatch{"Memory format of equal sizes",
                     [](auto& g) {
                       auto tensor = torch::ones({3, 3, 3, 3});
                       if (g.rank() == 1)
                         tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
                       g.all_reduce(tensor);
                     },
                     {"3x3x3x3]", "3x3x3x3 channels_last]"}},
            Mismatch{"Memory format of five dimensions",
                     [](auto& g) {
                       auto tensor = torch::ones({3, 3, 3, 3, 3});
                       if (g.rank() == 1)
                         tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast3d);
                       g.all_reduce(tensor);
                     },
                     {"3x3x3x3x3]", "3x3x3x3x3 channels_last]"}},
            Mismatch{"Complex types of equal sizes", gather_two_types, {", 4x8]", ", 2x16]"}},
            Mismatch{"Operation",
                     [](auto& g) { g.rank() == 0 ? g.barrier() : g.all_reduce(torch::ones({4})); },
                     {"barrier", "all_reduce[float32, 4]"}},
            Mismatch{"Splits",
                     [](auto& g) {
                       const std::vector<std::int64_t> splits(g.rank() == 0 ? 0 : 2, 2);
                       g.all_to_all_single(ones(4), ones(4), splits, splits);
                     },
                     {"all_to_all[float32, 2]", "all_to_all[float32, with splits]"}},
            Mismatch{"Root",
                     [](auto& g) { g.reduce(torch::ones({4}), g.rank()); },
                     {"root 0", "root 1"}})),
    [](const auto& info) {
      std::string name = std::get<0>(info.param) + std::get<1>(info.param).name;
      std::erase_if(name, [](char letter) { return !std::isalnum(letter); });
      return name;
    });

TEST_P(Mismatches, AreNamedOnEveryRank) {
  const auto& [backend, mismatch] = GetParam();
  const auto errors = errors_of_two(backend, mismatch.call);
  for (const char* expected : mismatch.expected) EXPECT_THAT(errors, Each(HasSubstr(expected)));
  EXPECT_THAT(errors, Each(HasSubstr("number 1")));
}

class MismatchedMessages : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, MismatchedMessages, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return info.param; });

// Gloo itself would end the process.
TEST_P(MismatchedMessages, OfUnevenSplitsSayWhoGivesWhat) {
  const auto errors = errors_of_two(GetParam(), [](ProcessGroup& group) {
    const bool gives_more = group.rank() == 0;
    group.all_to_all_single(ones(3), ones(gives_more ? 4 : 3), {1, 2},
                            gives_more ? Splits{1, 3} : Splits{1, 2});
  });
  EXPECT_THAT(
      errors,
      Each(AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                 AnyOf(HasSubstr(" 3 "), HasSubstr("expects 2"), HasSubstr("receives 2")))));
}

// Rank 0 gives rank 2 more than it expects, and what rank 1 gives is right.
TEST(ProcessGroupErrors, OfUnevenSplitsNameTheRankThatGivesAnotherNumber) {
  const std::pair<const char*, const char*> cases[] = {
      {"gloo",
       "rank 0 gives rank 2 2 elements in all_to_all[float32, with splits] (operation 0), which "
       "expects 1"},
      {"shm", "rank 0 sent 2 of float32 to rank 2, which receives 1 of float32"}};
  for (const auto& [backend, expected] : cases) {
    std::latch seen(3);
    const auto errors = run_group(3, backend, [&](ProcessGroup group) {
      const bool gives_more = group.rank() == 0;
      try {
        group.all_to_all_single(ones(3), ones(gives_more ? 4 : 3), {1, 1, 1},
                                gives_more ? Splits{1, 1, 2} : Splits{1, 1, 1});
      } catch (...) {
        seen.arrive_and_wait();
        throw;
      }
      seen.arrive_and_wait();
    });
    EXPECT_THAT(errors[2], HasSubstr(expected)) << backend;
  }
}

TEST_P(MismatchedMessages, OfAlgorithmsAreErrors) {
  for (const auto call : {+[](ProcessGroup& group) {
                            const auto op = group.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax;
                            group.all_reduce(ones(4), op, Algorithm::kRing);
                          },
                          +[](ProcessGroup& group) {
                            group.all_reduce(ones(100 + group.rank()), ReduceOp::kSum,
                                             Algorithm::kRing);
                          }}) {
    EXPECT_THAT(errors_of_two(GetParam(), call), Each(HasSubstr("all_reduce[float32, ")));
  }
}

// Stalls between an algorithm over point-to-point and a library collective, and between two
// algorithms.
class Stalls : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Stalls, ::testing::Values("gloo", "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(Stalls, EndWithWhatTheRanksCalled) {
  EXPECT_THAT(errors_of_two(GetParam(),
                            [](ProcessGroup& group) {
                              if (group.rank() == 0) return group.broadcast(ones(4), 0);
                              group.all_reduce(ones(4), ReduceOp::kSum, Algorithm::kRing);
                            }),
              Each(HasSubstr("rank 1 called all_reduce[float32, 4, by ring] as number 1, rank 0 "
                             "called broadcast[float32, 4, root 0]")));
  EXPECT_THAT(errors_of_two(GetParam(),
                            [](ProcessGroup& group) {
                              group.all_reduce(
                                  ones(1000), ReduceOp::kSum,
                                  group.rank() == 0 ? Algorithm::kTree : Algorithm::kRing);
                            }),
              Each(AllOf(HasSubstr("1000, by tree]"), HasSubstr("1000, by ring]"))));
}

class Failures : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(Failures, ANanIsNamedBeforeItSpreads) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_NAN_CHECK", "1");
  std::latch seen(2);
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    auto tensor = torch::ones({4});
    try {
      group.all_reduce(tensor);
      if (group.rank() == 1) tensor[2] = std::nan("");
      group.all_reduce(tensor);
    } catch (...) {
      seen.arrive_and_wait();
      throw;
    }
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr(
          "rank 1 brought NaN to all_reduce[float32, 4] (operation 1), first at element 2")));
}

// Rank 1's all-reduce consists of messages, which the shared-memory backend does not compare.
TEST_P(Failures, ADesynchronisedProgramEndsWithTheSameWordsEverywhere) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_DEBUG", "detail");
  std::latch seen(3);
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    for (int i = 0; i < 17; ++i) group.barrier();
    auto tensor = torch::ones({4});
    try {
      if (group.rank() == 1) {
        group.all_reduce(tensor, ReduceOp::kSum, Algorithm::kRing);
      } else {
        group.broadcast(tensor, 0);
      }
    } catch (...) {
      seen.arrive_and_wait();
      throw;
    }
    seen.arrive_and_wait();
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("rank 1 called all_reduce[float32, 4, by ring] as number 17, rank 0 "
                             "called broadcast[float32, 4, root 0]")));
}

TEST_P(Failures, SplitsThatSomeGiveAndOthersNotAreNoHang) {
  std::latch seen(3);
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    const auto input = torch::arange(6) + 10 * group.rank();
    auto output = torch::zeros({6}, torch::kInt64);
    const std::vector<std::int64_t> splits(group.rank() == 1 ? 3 : 0, 2);
    try {
      group.all_to_all_single(output, input, splits, splits);
    } catch (...) {
      seen.arrive_and_wait();
      throw;
    }
    seen.arrive_and_wait();
  });
  EXPECT_THAT(errors, Each(HasSubstr("all_to_all[int64, with splits]")));
}

TEST_P(Failures, AnAbortEndsEveryWaitWithItsReason) {
  std::latch seen(2);
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    try {
      group.barrier();  // the abort may arrive before rank 0 has returned from it
      if (group.rank() == 1) group.abort("the loss is infinite");
      group.barrier();
    } catch (...) {
      EXPECT_THROW(group.barrier(), CommError);  // all later calls throw as well
      EXPECT_THAT(message_of<CommError>([&] {    // also those that move nothing
                    group.all_reduce(torch::zeros({0}), ReduceOp::kSum, Algorithm::kNative);
                  }),
                  HasSubstr("the loss is infinite"));
      seen.arrive_and_wait();
      throw;
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("the loss is infinite")));
  EXPECT_THAT(errors[0], ::testing::StartsWith("rank 1 ended the group: the loss is infinite"));
}

// The text of an exception may be empty, or longer than a backend keeps.
TEST_P(Failures, HaveAReasonOfAnyLength) {
  for (const std::string& reason : {std::string(), std::string(5000, 'x')}) {
    std::latch seen(2);
    const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
      try {
        group.barrier();
        if (group.rank() == 1) group.abort(reason);
        group.barrier();
      } catch (...) {
        seen.arrive_and_wait();
        throw;
      }
    });
    EXPECT_THAT(errors, Each(HasSubstr(reason.empty() ? "aborted, and no reason was given"
                                                      : reason.substr(0, 900))));
  }
}

TEST_P(Failures, LeaveTheFlightRecorder) {
  const testing_support::TemporaryDirectory directory;
  std::latch seen(2);
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_threads(2, [&](int rank) {
    auto group =
        init_process_group({.backend = GetParam(),
                            .timeout = std::chrono::seconds(30),
                            .host_id = lockstep::str(GetParam() == "hierarchical" ? rank : 0),
                            .flight_recorder_directory = directory.path() / "flight",
                            .environment = environment_of(rank, 2, fd)});
    group.barrier();
    if (rank == 0) {
      auto work = group.async_all_reduce(torch::ones({4}));
      const auto message = testing_support::message_of<TimeoutError>(
          [&] { work->wait(std::chrono::milliseconds(200)); });
      EXPECT_THAT(message,
                  AllOf(HasSubstr("all_reduce[float32, 4]"), HasSubstr("; flight recorder in ")));
      EXPECT_TRUE(work->is_completed());
      EXPECT_NE(work->error(), nullptr);
      EXPECT_THROW(work->wait(), TimeoutError);  // every wait fails
    }
    seen.arrive_and_wait();  // rank 1 stays until rank 0 has seen the deadline
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "flight" / "rank_0"));
}

TEST_P(Failures, StandWithoutAFlightRecorderThatCannotBeWritten) {
  const testing_support::TemporaryDirectory directory;
  directory.write("file", "");
  const CapturedLog log;
  std::latch seen(2);
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_threads(2, [&](int rank) {
    auto group =
        init_process_group({.backend = GetParam(),
                            .timeout = std::chrono::seconds(30),
                            .host_id = lockstep::str(GetParam() == "hierarchical" ? rank : 0),
                            .flight_recorder_directory = directory.path() / "file" / "flight",
                            .environment = environment_of(rank, 2, fd)});
    try {
      group.barrier();
      if (rank == 1) group.abort("enough");
      group.barrier();
    } catch (...) {
      seen.arrive_and_wait();
      throw;
    }
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("enough"), ::testing::Not(HasSubstr("recorder")))));
  EXPECT_THAT(log.lines(), ::testing::Contains(HasSubstr(
                               "the flight recorder was not written: cannot create the folder")));
}

TEST_P(Failures, AMonitoredBarrierNamesTheMissing) {
  std::latch seen(3);
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    group.monitored_barrier();
    std::string message;
    if (group.rank() != 1) {
      message = testing_support::message_of<TimeoutError>(
          [&] { group.monitored_barrier(std::chrono::milliseconds(300)); });
      EXPECT_EQ(message,
                lockstep::str("rank ", group.rank(),
                              " waited 0.3 s for rank 1 of 3 in the monitored barrier (number 1)"));
    }
    seen.arrive_and_wait();
  });
  EXPECT_EQ(errors, no_errors(3));
}

}  // namespace
}  // namespace lockstep::comm
