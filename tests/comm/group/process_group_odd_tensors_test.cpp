// Tensors that few programs pass: complex, expanded, without elements or dimensions, of types
// without arithmetic, or leaves of autograd. Every kind of call takes them on every backend; ranks
// are threads.
#include <lockstep/comm/group/process_group.h>

#include <functional>
#include <latch>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing_support::in_layout;
using testing_support::Layout;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::reduced;
using testing_support::require_equal;
using testing_support::run_group;
using testing_support::values;

struct OddSetting {
  std::string backend;
  int size;
};

class OddTensors : public ::testing::TestWithParam<OddSetting> {
 protected:
  static void run(const std::function<void(ProcessGroup)>& body) {
    EXPECT_EQ(run_group(GetParam().size, GetParam().backend, body), no_errors(GetParam().size));
  }
};
INSTANTIATE_TEST_SUITE_P(All, OddTensors,
                         ::testing::Values(OddSetting{"shm", 3}, OddSetting{"gloo", 3},
                                           OddSetting{"auto", 1}, OddSetting{"hierarchical", 4}),
                         [](const auto& info) {
                           return info.param.size == 1 ? "single" : info.param.backend;
                         });

// As values(), with an imaginary part where the type has one.
torch::Tensor any_values(at::IntArrayRef shape, torch::ScalarType type, int rank) {
  if (!c10::isComplexType(type)) return values(shape, type, rank);
  const auto part = c10::toRealValueType(type);
  return torch::complex(values(shape, part, rank), values(shape, part, rank + 7));
}

// A complex tensor as one of real numbers.
torch::Tensor numbers_of(const torch::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

// The reduction of all ranks' any_values(), as real numbers.
torch::Tensor reduced_numbers(at::IntArrayRef shape, torch::ScalarType type, int size,
                              ReduceOp op) {
  Tensors inputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(numbers_of(any_values(shape, type, rank)).contiguous());
  }
  return reduced(inputs, op);
}

TEST_P(OddTensors, OfComplexNumbersAreReducedByEveryLinearOperation) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank(), root = size - 1;
    for (const auto type : {torch::kComplexFloat, torch::kComplexDouble}) {
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::premultiplied_sum(0.5)}) {
        const auto mine = any_values({size, 3}, type, rank);
        const auto expected = reduced_numbers({size, 3}, type, size, op);
        for (const Layout layout : {Layout::kContiguous, Layout::kTransposed, Layout::kStrided}) {
          const auto check = [&](const torch::Tensor& got, const torch::Tensor& wanted,
                                 const char* call) {
            require_equal(
                numbers_of(got), wanted,
                lockstep::str(call, " of ", c10::toString(type), ", ", reduce_op_name(op.kind),
                              ", layout ", static_cast<int>(layout)));
          };
          const auto make = [&] { return in_layout(mine, layout); };
          auto tensor = make();
          group.all_reduce(tensor, op);
          check(tensor, expected, "all_reduce");
          tensor = make();
          group.reduce(tensor, root, op);
          check(tensor, rank == root ? expected : numbers_of(mine), "reduce");
          auto output = in_layout(torch::zeros({3}, type), layout);
          group.reduce_scatter_tensor(output, make(), op);
          check(output, expected[rank], "reduce_scatter_tensor");
          output = in_layout(torch::zeros({3}, type), layout);
          group.reduce_scatter(output, make().unbind(), op);
          check(output, expected[rank], "reduce_scatter");
          const Tensors several = {make(), any_values({}, type, rank)};
          group.all_reduce_coalesced(several, op);
          check(several[0], expected, "all_reduce_coalesced");
          check(several[1], reduced_numbers({}, type, size, op), "a number of its own");
        }
      }
    }
  });
}

// Rank `from` gives this many rows to rank `to`: some pairs exchange nothing.
std::int64_t rows_between(int from, int to) { return (from + 2 * to) % 4; }

TEST_P(OddTensors, OfEveryTypeAreExchangedInUnevenPieces) {
  run([](ProcessGroup group) {
    const int rank = group.rank();
    for (const auto type :
         {torch::kComplexFloat, torch::kComplexDouble, torch::kBool, torch::kBFloat16}) {
      for (const Layout layout : {Layout::kContiguous, Layout::kTransposed}) {
        const std::string what =
            lockstep::str(c10::toString(type), " in layout ", static_cast<int>(layout));
        const auto piece = [&](int from, int to) {
          return any_values({rows_between(from, to), 3}, type, 10 * from + to);
        };
        Tensors inputs, outputs, given, expected;
        std::vector<std::int64_t> input_splits, output_splits;
        for (int r = 0; r < group.size(); ++r) {
          given.push_back(piece(rank, r));
          expected.push_back(piece(r, rank));
          inputs.push_back(in_layout(given.back(), layout));
          outputs.push_back(in_layout(torch::zeros_like(expected.back()), layout));
          input_splits.push_back(rows_between(rank, r));
          output_splits.push_back(rows_between(r, rank));
        }
        const auto output = in_layout(torch::zeros_like(torch::cat(expected)), layout);
        group.all_to_all_single(output, in_layout(torch::cat(given), layout), output_splits,
                                input_splits);
        require_equal(output, torch::cat(expected), "all_to_all_single of " + what);
        group.all_to_all(outputs, inputs);
        require_equal(torch::cat(outputs), torch::cat(expected), "all_to_all of " + what);
      }
    }
  });
}

TEST_P(OddTensors, WithoutElementsOrDimensionsTakePartInEveryCall) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank(), root = size / 2;
    const auto place = static_cast<std::size_t>(rank);
    for (const auto type : {torch::kFloat32, torch::kComplexDouble, torch::kBool}) {
      for (const std::vector<std::int64_t>& shape :
           std::vector<std::vector<std::int64_t>>{{}, {0}, {3, 0}}) {
        const std::string what =
            lockstep::str(" of ", c10::toString(type), ' ', at::IntArrayRef(shape));
        Tensors all;
        for (int r = 0; r < size; ++r) all.push_back(any_values(shape, type, r));
        const auto zeros = [&] { return torch::zeros(shape, type); };
        const auto list = [&] {
          Tensors tensors;
          for (int r = 0; r < size; ++r) tensors.push_back(zeros());
          return tensors;
        };
        const auto expect_all = [&](const Tensors& got, const std::string& call) {
          for (std::size_t r = 0; r < got.size(); ++r) require_equal(got[r], all[r], call + what);
        };
        auto whole = torch::zeros_like(torch::stack(all));
        group.all_gather_into_tensor(whole, all[place]);
        require_equal(whole, torch::stack(all), "all_gather_into_tensor" + what);

        Tensors outputs = rank == root ? list() : Tensors();
        group.gather(all[place], outputs, root);
        expect_all(outputs, "gather");

        auto output = zeros();
        group.scatter(output, rank == root ? all : Tensors(), root);
        require_equal(output, all[place], "scatter" + what);

        outputs = list();
        group.all_to_all(outputs, Tensors(static_cast<std::size_t>(size), all[place]));
        expect_all(outputs, "all_to_all");

        auto tensor = all[place].clone();
        group.broadcast(tensor, root);
        require_equal(tensor, all[static_cast<std::size_t>(root)], "broadcast" + what);

        tensor = all[place].clone();
        group.reduce(tensor, root);
        const auto sum = reduced(all, ReduceOp::kSum);
        require_equal(tensor, rank == root ? sum : all[place], "reduce" + what);

        output = zeros();
        group.reduce_scatter_tensor(output, torch::stack(Tensors(all.size(), all[place])));
        require_equal(output, sum, "reduce_scatter_tensor" + what);

        if (size == 1) continue;
        const int left = (rank + size - 1) % size;
        auto received = zeros();
        for (const auto& work :
             group.batch_isend_irecv({{P2POp::Kind::kSend, all[place], (rank + 1) % size},
                                      {P2POp::Kind::kRecv, received, left}})) {
          work->wait();
        }
        require_equal(received, all[static_cast<std::size_t>(left)], "a message" + what);
      }
    }
  });
}

// One element stands for all. A call that only reads the tensor must read it as often as it is
// repeated, and must leave it as it is.
TEST_P(OddTensors, ThatAreExpandedMayBeRead) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank(), root = size - 1;
    const auto count = static_cast<std::size_t>(size);
    const auto base = torch::full({1}, rank + 1.0F);
    const auto repeated = base.expand({4});
    const float sum = static_cast<float>(size * (size + 1)) / 2;
    const auto ranks_values = torch::arange(1, size + 1).to(torch::kFloat32).view({size, 1});
    const auto all = ranks_values.expand({size, 4}).contiguous();

    auto tensor = rank == root ? repeated : torch::zeros({4});
    group.broadcast(tensor, root);
    require_equal(tensor, torch::full({4}, size * 1.0F), "broadcast");
    tensor = rank == root ? repeated.clone() : repeated;
    group.reduce(tensor, root);
    require_equal(tensor, torch::full({4}, rank == root ? sum : rank + 1.0F), "reduce");

    auto whole = torch::zeros({size, 4});
    group.all_gather_into_tensor(whole, repeated);
    require_equal(whole, all, "all_gather_into_tensor");
    whole.zero_();
    group.all_gather(whole.unbind(), repeated);
    require_equal(whole, all, "all_gather");
    whole.zero_();
    group.gather(repeated, rank == root ? whole.unbind() : Tensors(), root);
    if (rank == root) require_equal(whole, all, "gather");
    whole.zero_();
    group.all_to_all(whole.unbind(), Tensors(count, repeated));
    require_equal(whole, all, "all_to_all");
    whole.zero_();
    group.all_to_all_single(whole, base.expand({size, 4}));
    require_equal(whole, all, "all_to_all_single");

    auto output = torch::zeros({4});
    group.reduce_scatter(output, Tensors(count, repeated));
    require_equal(output, torch::full({4}, sum), "reduce_scatter");
    output.zero_();
    group.reduce_scatter_tensor(output, base.expand({size, 4}));
    require_equal(output, torch::full({4}, sum), "reduce_scatter_tensor");
    output.zero_();
    Tensors inputs;
    for (int r = 0; rank == root && r < size; ++r) inputs.push_back(ranks_values[r].expand({4}));
    group.scatter(output, inputs, root);
    require_equal(output, torch::full({4}, rank + 1.0F), "scatter");
    if (size > 1) {
      const int left = (rank + size - 1) % size;
      const auto work = group.irecv(output, left);
      group.send(repeated, (rank + 1) % size);
      work->wait();
      require_equal(output, torch::full({4}, left + 1.0F), "a message");
    }
    require_equal(base, torch::full({1}, rank + 1.0F), "the element");
  });
}

// Most calls move elements in logical order, whatever their order in memory.
TEST_P(OddTensors, OfChannelsLastArriveInLogicalOrder) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank(), root = size - 1;
    const auto format = at::MemoryFormat::ChannelsLast;
    const auto numbers = [](int r) {
      return torch::arange(120, torch::kFloat32).view({2, 3, 4, 5}) + 200 * r;
    };
    const auto ordered = [&](int r) { return numbers(r).contiguous(format); };
    Tensors all, all_ordered;
    for (int r = 0; r < size; ++r) {
      all.push_back(numbers(r));
      all_ordered.push_back(ordered(r));
    }
    const auto blanks = [&] {
      Tensors tensors;
      for (int r = 0; r < size; ++r) tensors.push_back(torch::zeros_like(all_ordered[0]));
      return tensors;
    };
    const auto expect_all = [&](const Tensors& got, const char* call) {
      for (std::size_t r = 0; r < got.size(); ++r) {
        LOCKSTEP_CHECK(got[r].is_contiguous(format), call);
        require_equal(got[r], all[r], call);
      }
    };
    Tensors outputs = blanks();
    group.all_gather(outputs, ordered(rank));
    expect_all(outputs, "all_gather");
    auto whole = torch::zeros({2 * size, 3, 4, 5}).contiguous(format);
    group.all_gather_into_tensor(whole, ordered(rank));
    require_equal(whole, torch::cat(all), "all_gather_into_tensor");
    outputs = rank == root ? blanks() : Tensors();
    group.gather(ordered(rank), outputs, root);
    expect_all(outputs, "gather");

    auto output = blanks()[0];
    group.scatter(output, rank == root ? all_ordered : Tensors(), root);
    require_equal(output, numbers(rank), "scatter");
    output.zero_();
    group.reduce_scatter(output, all_ordered);
    require_equal(output, numbers(rank) * size, "reduce_scatter");
    output.zero_();
    group.reduce_scatter_tensor(output, torch::cat(all).contiguous(format));
    require_equal(output, numbers(rank) * size, "reduce_scatter_tensor");

    outputs = blanks();
    group.all_to_all(outputs, Tensors(all.size(), ordered(rank)));
    expect_all(outputs, "all_to_all");
    whole.zero_();
    const Tensors own(all.size(), numbers(rank));
    group.all_to_all_single(whole, torch::cat(own).contiguous(format));
    require_equal(whole, torch::cat(all), "all_to_all_single");

    const auto sum = torch::stack(all).sum(0);
    auto tensor = ordered(rank);
    group.all_reduce_coalesced({torch::ones({2}), tensor});
    require_equal(tensor, sum, "all_reduce_coalesced");
    tensor = ordered(rank);
    group.broadcast_coalesced({torch::ones({2}), tensor}, root);
    require_equal(tensor, numbers(root), "broadcast_coalesced");
    tensor = ordered(rank);
    group.reduce(tensor, root);
    require_equal(tensor, rank == root ? sum : numbers(rank), "reduce");
    tensor = ordered(rank);
    group.broadcast(tensor, root);
    require_equal(tensor, numbers(root), "broadcast");
    if (size == 1) return;
    const int left = (rank + size - 1) % size;
    const auto work = group.irecv(tensor, left);
    group.send(ordered(rank), (rank + 1) % size);
    work->wait();
    require_equal(tensor, numbers(left), "a message");
  });
}

TEST_P(OddTensors, OfTypesWithoutArithmeticMoveAndAreNotReduced) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank();
    for (const auto type : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {
      const std::string name = c10::toString(type);
      const auto numbers = [&](int r) { return values({5}, torch::kInt64, r); };
      auto tensor = numbers(rank).to(type);
      EXPECT_THAT(message_of<ConfigError>([&] { group.all_reduce(tensor); }),
                  HasSubstr("all_reduce: the sum of " + name + " is not defined"));
      EXPECT_THAT(message_of<ConfigError>([&] { group.all_reduce_coalesced({tensor}); }),
                  HasSubstr("all_reduce_coalesced: the sum of " + name + " is not defined"));
      require_equal(tensor.to(torch::kInt64), numbers(rank), "a refused " + name);
      auto whole = torch::zeros({size, 5}, torch::kInt64).to(type);
      group.all_gather_into_tensor(whole, tensor);
      for (int r = 0; r < size; ++r) {
        require_equal(whole.to(torch::kInt64)[r], numbers(r), "all_gather of " + name);
      }
      group.broadcast(tensor, size - 1);
      require_equal(tensor.to(torch::kInt64), numbers(size - 1), "broadcast of " + name);
    }
  });
}

TEST_P(OddTensors, AreReducedByEveryAlgorithm) {
  struct AlgorithmCase {
    torch::ScalarType type;
    ReduceOp op;
    std::vector<std::int64_t> shape;
    Layout layout;
  };
  const std::vector<AlgorithmCase> cases = {
      {torch::kComplexFloat, ReduceOp::kAverage, {4, 5}, Layout::kTransposed},
      {torch::kComplexDouble, ReduceOp::premultiplied_sum(0.5), {}, Layout::kContiguous},
      {torch::kBFloat16, ReduceOp::premultiplied_sum(0.5), {3, 7}, Layout::kRowsApart},
      {torch::kFloat32, ReduceOp::premultiplied_sum(-3), {5, 4}, Layout::kView},
      {torch::kFloat64, ReduceOp::premultiplied_sum(1), {9}, Layout::kStrided},
      {torch::kBool, ReduceOp::kMin, {4, 3}, Layout::kStrided},
      {torch::kInt8, ReduceOp::kBitwiseXor, {2, 3, 5}, Layout::kTransposed},
      {torch::kFloat64, ReduceOp::kProduct, {5, 2}, Layout::kRowsApart},
      {torch::kFloat32, ReduceOp::kMax, {3, 0}, Layout::kTransposed},
  };
  run([&](ProcessGroup group) {
    for (const Algorithm algorithm : all_algorithms()) {
      for (const AlgorithmCase& each : cases) {
        const auto tensor = in_layout(any_values(each.shape, each.type, group.rank()), each.layout);
        group.async_all_reduce(tensor, each.op, algorithm)->wait();
        require_equal(numbers_of(tensor),
                      reduced_numbers(each.shape, each.type, group.size(), each.op),
                      lockstep::str(algorithm_name(algorithm), " of ", c10::toString(each.type)));
      }
    }
  });
}

TEST_P(OddTensors, MayLieInMemoryOfTheGroup) {
  run([](ProcessGroup group) {
    const int rank = group.rank(), root = group.size() - 1;
    for (const auto type : {torch::kFloat64, torch::kComplexFloat, torch::kBool}) {
      for (const std::vector<std::int64_t>& shape :
           std::vector<std::vector<std::int64_t>>{{}, {0, 3}, {5, 2}}) {
        const std::string what = lockstep::str(c10::toString(type), ' ', at::IntArrayRef(shape));
        auto memory = group.allocate(shape, type);
        require_equal(memory, torch::zeros(shape, type), "allocate " + what);
        memory.copy_(any_values(shape, type, rank));
        group.broadcast(memory, root);
        require_equal(memory, any_values(shape, type, root), "broadcast " + what);
        memory.copy_(any_values(shape, type, rank));
        group.all_reduce(memory);
        require_equal(numbers_of(memory),
                      reduced_numbers(shape, type, group.size(), ReduceOp::kSum),
                      "all_reduce " + what);
        group.barrier();
      }
    }
  });
}

// A call neither joins the graph of a leaf nor makes the leaf something else.
TEST_P(OddTensors, ThatAreLeavesOfAutogradStayLeaves) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank(), root = size - 1;
    for (const bool transposed : {false, true}) {
      const auto leaf = [&](float value) {
        const auto tensor = torch::full({2, 3}, value);
        return (transposed ? tensor.t() : tensor).requires_grad_();
      };
      const auto expect = [&](const torch::Tensor& got, float value, const char* what) {
        LOCKSTEP_CHECK(got.is_leaf() && got.requires_grad(), what);
        require_equal(got.detach(), torch::full_like(got.detach(), value), what);
      };
      const auto leaves = [&](float first) {
        Tensors tensors;
        for (int r = 0; r < size; ++r) tensors.push_back(leaf(first + static_cast<float>(r)));
        return tensors;
      };
      Tensors outputs = leaves(100);
      group.all_gather(outputs, leaf(rank + 1.0F));
      for (int r = 0; r < size; ++r) {
        expect(outputs[static_cast<std::size_t>(r)], r + 1.0F, "all_gather");
      }
      auto output = leaf(-1);
      group.scatter(output, rank == root ? leaves(5) : Tensors(), root);
      expect(output, 5.0F + rank, "scatter");
      output = leaf(-1);
      group.reduce_scatter(output, leaves(2));
      expect(output, static_cast<float>(size) * (2.0F + rank), "reduce_scatter");
      outputs = leaves(-1);
      group.all_to_all(outputs, leaves(10.0F * rank));
      for (int r = 0; r < size; ++r) {
        expect(outputs[static_cast<std::size_t>(r)], 10.0F * r + rank, "all_to_all");
      }
      outputs = {leaf(rank + 1.0F), leaf(1)};
      group.all_reduce_coalesced(outputs);
      expect(outputs[0], static_cast<float>(size * (size + 1)) / 2, "all_reduce_coalesced");
      expect(outputs[1], static_cast<float>(size), "all_reduce_coalesced, the second");
    }
  });
}

TEST_P(OddTensors, MayBeEmptyTexts) {
  run([](ProcessGroup group) {
    const int root = group.size() - 1;
    const bool is_root = group.rank() == root;
    EXPECT_EQ(group.broadcast_object(is_root ? "" : "not the root's", root), "");
    const std::vector<std::string> none(static_cast<std::size_t>(group.size()));
    EXPECT_EQ(group.gather_object("", root), is_root ? none : std::vector<std::string>());
    EXPECT_EQ(group.scatter_object(is_root ? none : std::vector<std::string>(), root), "");
  });
}

// --- NaN -----------------------------------------------------------------------------------------

struct NanCase {
  const char* name;
  std::function<void(ProcessGroup&, float value)> call;  // rank 1 passes NaN
  const char* expected;
};

TEST(NanCheck, LooksAtEveryReduction) {
  const std::vector<NanCase> cases = {
      {"reduce",
       [](auto& g, float value) {
         auto tensor = torch::ones({4}, torch::kBFloat16);
         tensor[3] = value;
         g.reduce(tensor, 0);
       },
       "reduce[bfloat16, 4, root 0] (operation 0), first at element 3"},
      {"a list",
       [](auto& g, float value) {
         const Tensors inputs = {torch::ones({4}, torch::kFloat64),
                                 torch::ones({4}, torch::kFloat64)};
         inputs[1][2] = value;
         g.reduce_scatter(torch::zeros({4}, torch::kFloat64), inputs);
       },
       "reduce_scatter[float64, 4] (operation 0), first at element 6"},
      {"an imaginary part",
       [](auto& g, float value) {
         const auto parts = torch::ones({4, 2});
         parts[1][1] = value;
         g.all_reduce(at::view_as_complex(parts));
       },
       "all_reduce[float32, 4x2] (operation 0), first at element 3"},
      {"several tensors",
       [](auto& g, float value) {
         const auto tensor = torch::ones({4}, torch::kFloat16);
         tensor[1] = value;
         g.all_reduce_coalesced({torch::ones({2}, torch::kFloat16), tensor});
       },
       "all_reduce[float16, 6] (operation 0), first at element 3"},
      {"a column",
       [](auto& g, float value) {
         const auto matrix = torch::ones({4, 3});
         matrix[2][1] = value;
         g.async_all_reduce(matrix.select(1, 1))->wait();
       },
       "all_reduce[float32, 4] (operation 0), first at element 2"},
  };
  for (const NanCase& each : cases) {
    std::latch seen(2);
    const int fd = comm::listen_on("127.0.0.1", 0);
    const auto errors = testing_support::run_threads(2, [&](int rank) {
      auto group =
          init_process_group({.backend = "shm",
                              .timeout = std::chrono::seconds(30),
                              .nan_check = true,
                              .environment = testing_support::environment_of(rank, 2, fd)});
      try {
        each.call(group, rank == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
      } catch (...) {
        seen.arrive_and_wait();
        throw;
      }
      seen.arrive_and_wait();
    });
    EXPECT_THAT(errors, Each(HasSubstr(std::string("rank 1 brought NaN to ") + each.expected)))
        << each.name;
  }
}

// Infinite values are numbers, integers hold no NaN, and calls that only move data may hold one.
TEST(NanCheck, LetsEverythingElsePass) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_NAN_CHECK", "1");
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    auto infinite = torch::full({3}, std::numeric_limits<float>::infinity());
    group.all_reduce(infinite);
    require_equal(infinite, torch::full({3}, std::numeric_limits<float>::infinity()), "infinite");
    auto integers = torch::full({3}, -1, torch::kInt32);
    group.all_reduce(integers);
    require_equal(integers, torch::full({3}, -2, torch::kInt32), "integers");
    group.all_reduce(torch::zeros({0}));
    auto moved = torch::full({2}, group.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 0);
    group.broadcast(moved, 0);
    EXPECT_TRUE(moved.isnan().all().item<bool>());
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
