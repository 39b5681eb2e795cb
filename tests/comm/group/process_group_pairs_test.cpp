// Calls whose type, operation, layout, shape, root and form are drawn at random, so that each pair
// of these meets; on every backend, with ranks as threads.
#include <lockstep/comm/group/process_group.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/reduce.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing_support::all_layouts;
using testing_support::in_layout;
using testing_support::Layout;
using testing_support::no_errors;
using testing_support::reduced;
using testing_support::require_equal;
using testing_support::run_group;
using testing_support::values;

struct PairSetting {
  std::string backend;
  int size;
};

// What one call of the sequence is like. All ranks draw the same.
struct DrawnCall {
  int kind;
  torch::ScalarType type;
  ReduceOp op;
  Layout layout;
  Layout other_layout;
  std::vector<std::int64_t> shape;
  int root;
  bool waits_later;
};

constexpr int kKinds = 8;

DrawnCall draw(std::mt19937& random, int size) {
  static const std::vector<torch::ScalarType> types = {
      torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
      torch::kInt16,   torch::kInt32,   torch::kInt64,   torch::kUInt8,    torch::kBool};
  static const std::vector<ReduceOp> ops = {
      ReduceOp::kSum,       ReduceOp::kProduct,    ReduceOp::kMin,
      ReduceOp::kMax,       ReduceOp::kAverage,    ReduceOp::kBitwiseAnd,
      ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(0.5)};
  static const std::vector<std::vector<std::int64_t>> shapes = {{},     {1},       {5},
                                                                {3, 4}, {2, 3, 4}, {400, 3}};
  const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
  DrawnCall call{};
  call.kind = static_cast<int>(random() % kKinds);
  call.type = one_of(types);
  do {
    call.op = one_of(ops);
  } while (!comm::why_not_reducible(comm::data_type_of(call.type), call.op).empty());
  call.layout = one_of(all_layouts());
  call.other_layout = one_of(all_layouts());
  call.shape = one_of(shapes);
  call.root = static_cast<int>(random() % static_cast<unsigned>(size));
  call.waits_later = random() % 2 == 0;
  return call;
}

// What rank `from` gives to rank `to`, if it gives each another tensor.
torch::Tensor given(const DrawnCall& call, int from, int to) {
  return values(call.shape, call.type, from + 3 * to);
}

class CallPairs : public ::testing::TestWithParam<PairSetting> {
 protected:
  // Makes the call on this rank, and throws if its result is wrong.
  static void make(ProcessGroup& group, const DrawnCall& call, const std::string& what) {
    const int rank = group.rank(), size = group.size();
    const auto finish = [&](const std::function<void()>& now,
                            const std::function<WorkPtr()>& later) {
      call.waits_later ? later()->wait() : now();
    };
    const auto list = [&](const std::function<torch::Tensor(int)>& of) {
      Tensors tensors;
      for (int r = 0; r < size; ++r) {
        tensors.push_back(in_layout(of(r), r % 2 == 0 ? call.layout : call.other_layout));
      }
      return tensors;
    };
    const auto zeros = [&](int) { return torch::zeros(call.shape, call.type); };
    const auto mine = values(call.shape, call.type, rank);
    std::vector<torch::Tensor> all;
    for (int r = 0; r < size; ++r) all.push_back(values(call.shape, call.type, r));
    const auto tensor = in_layout(mine, call.layout);
    switch (call.kind) {
      case 0:
        finish([&] { group.all_reduce(tensor, call.op); },
               [&] { return group.async_all_reduce(tensor, call.op); });
        return require_equal(tensor, reduced(all, call.op), what);
      case 1:
        finish([&] { group.reduce(tensor, call.root, call.op); },
               [&] { return group.async_reduce(tensor, call.root, call.op); });
        return require_equal(tensor, rank == call.root ? reduced(all, call.op) : mine, what);
      case 2:
        finish([&] { group.broadcast(tensor, call.root); },
               [&] { return group.async_broadcast(tensor, call.root); });
        return require_equal(tensor, all[static_cast<std::size_t>(call.root)], what);
      case 3: {
        const Tensors outputs = list(zeros);
        finish([&] { group.all_gather(outputs, tensor); },
               [&] { return group.async_all_gather(outputs, tensor); });
        for (int r = 0; r < size; ++r) {
          const auto place = static_cast<std::size_t>(r);
          require_equal(outputs[place], all[place], what);
        }
        return require_equal(tensor, mine, what + ", its input");
      }
      case 4: {
        const Tensors outputs = rank == call.root ? list(zeros) : Tensors();
        finish([&] { group.gather(tensor, outputs, call.root); },
               [&] { return group.async_gather(tensor, outputs, call.root); });
        for (std::size_t r = 0; r < outputs.size(); ++r) require_equal(outputs[r], all[r], what);
        return;
      }
      case 5: {
        const Tensors inputs = rank == call.root
                                   ? list([&](int to) { return given(call, call.root, to); })
                                   : Tensors();
        finish([&] { group.scatter(tensor, inputs, call.root); },
               [&] { return group.async_scatter(tensor, inputs, call.root); });
        return require_equal(tensor, given(call, call.root, rank), what);
      }
      case 6: {
        const Tensors inputs = list([&](int to) { return given(call, rank, to); });
        finish([&] { group.reduce_scatter(tensor, inputs, call.op); },
               [&] { return group.async_reduce_scatter(tensor, inputs, call.op); });
        std::vector<torch::Tensor> terms;
        for (int r = 0; r < size; ++r) terms.push_back(given(call, r, rank));
        return require_equal(tensor, reduced(terms, call.op), what);
      }
      default: {
        const Tensors inputs = list([&](int to) { return given(call, rank, to); });
        const Tensors outputs = list(zeros);
        finish([&] { group.all_to_all(outputs, inputs); },
               [&] { return group.async_all_to_all(outputs, inputs); });
        for (int r = 0; r < size; ++r) {
          require_equal(outputs[static_cast<std::size_t>(r)], given(call, r, rank), what);
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, CallPairs,
                         ::testing::Values(PairSetting{"shm", 3}, PairSetting{"gloo", 3},
                                           PairSetting{"auto", 1}, PairSetting{"hierarchical", 3}),
                         [](const auto& info) {
                           return info.param.size == 1 ? "single" : info.param.backend;
                         });

TEST_P(CallPairs, GiveWhatOneProcessComputes) {
  const int size = GetParam().size;
  const auto errors = run_group(size, GetParam().backend, [&](ProcessGroup group) {
    std::mt19937 random(11);
    for (int i = 0; i < 200; ++i) {
      const DrawnCall call = draw(random, size);
      make(group, call,
           lockstep::str("call ", i, " of kind ", call.kind, ", ", comm::type_name(call.type), ", ",
                         reduce_op_name(call.op.kind), ", layouts ", static_cast<int>(call.layout),
                         " and ", static_cast<int>(call.other_layout), ", shape ",
                         at::IntArrayRef(call.shape), ", root ", call.root,
                         call.waits_later ? ", waits later" : ""));
    }
  });
  EXPECT_EQ(errors, no_errors(size));
}

}  // namespace
}  // namespace lockstep
