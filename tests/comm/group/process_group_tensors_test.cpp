// Tensors of a call that share memory, and what autograd learns of calls that write; on every
// backend, with ranks as threads.
#include <lockstep/comm/group/process_group.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::reduced_values;
using testing_support::require_equal;
using testing_support::run_group;
using testing_support::values;

struct TensorSetting {
  std::string backend;
  int size;
};

class CallTensors : public ::testing::TestWithParam<TensorSetting> {
 protected:
  static void run(const std::function<void(ProcessGroup)>& body) {
    EXPECT_EQ(run_group(GetParam().size, GetParam().backend, body), no_errors(GetParam().size));
  }
};
INSTANTIATE_TEST_SUITE_P(All, CallTensors,
                         ::testing::Values(TensorSetting{"shm", 3}, TensorSetting{"gloo", 3},
                                           TensorSetting{"auto", 1},
                                           TensorSetting{"hierarchical", 4}),
                         [](const auto& info) {
                           return info.param.size == 1 ? "single" : info.param.backend;
                         });

// --- Tensors that share memory -------------------------------------------------------------------

// One float32 tensor for each rank: rows of one matrix.
Tensors rows_of(int size, std::int64_t columns = 4) {
  return torch::zeros({size, columns}).unbind();
}

struct OverlapCase {
  const char* name;
  std::function<void(ProcessGroup&)> call;
  const char* expected;
  int smallest = 1;  // the smallest group in which the tensors overlap
};

const std::vector<OverlapCase> kOverlaps = {
    {"one output twice",
     [](auto& g) { g.all_gather(Tensors(g.size(), torch::zeros({4})), torch::ones({4})); },
     "all_gather: outputs[1] shares memory with outputs[0], which this call writes; pass a clone()",
     2},
    {"outputs that overlap in part",
     [](auto& g) {
       Tensors outputs = rows_of(g.size());
       outputs.back() = torch::zeros({6}).narrow(0, 0, 4);
       outputs.front() = outputs.back().as_strided({4}, {1}, 2);
       g.async_all_gather(outputs, torch::ones({4}));
     },
     "shares memory with outputs[0]", 2},
    {"an input that is another rank's output",
     [](auto& g) {
       const Tensors outputs = rows_of(g.size());
       g.all_gather(outputs, outputs[(g.rank() + 1) % g.size()]);
     },
     "all_gather: input shares memory with outputs[", 2},
    {"an input in another rank's place",
     [](auto& g) {
       const auto output = torch::zeros({g.size(), 4});
       g.all_gather_into_tensor(output, output[(g.rank() + 1) % g.size()]);
     },
     "all_gather_into_tensor: input shares memory with output, which", 2},
    {"an input between two places",
     [](auto& g) {
       const auto memory = torch::zeros({g.size() * 4 + 2});
       g.async_all_gather_into_tensor(memory.narrow(0, 2, g.size() * 4),
                                      memory.narrow(0, 4 * g.rank(), 4));
     },
     "all_gather_into_tensor: input shares memory with output"},
    {"an output in another rank's place",
     [](auto& g) {
       const auto input = torch::ones({g.size(), 4});
       g.reduce_scatter_tensor(input[(g.rank() + 1) % g.size()], input);
     },
     "reduce_scatter_tensor: input shares memory with output", 2},
    {"an output that is another rank's input",
     [](auto& g) {
       const Tensors inputs = rows_of(g.size());
       g.reduce_scatter(inputs[(g.rank() + 1) % g.size()], inputs);
     },
     "reduce_scatter: inputs[", 2},
    {"an output that is every rank's input",
     [](auto& g) {
       const auto row = torch::ones({4});
       g.async_reduce_scatter(row, Tensors(g.size(), row));
     },
     "reduce_scatter: inputs[", 2},
    {"complex outputs",
     [](auto& g) {
       const auto input = torch::ones({g.size(), 4}, torch::kComplexFloat);
       g.reduce_scatter_tensor(input[(g.rank() + 1) % g.size()], input, ReduceOp::kAverage);
     },
     "reduce_scatter_tensor: input shares memory with output", 2},
    {"an exchange in place",
     [](auto& g) {
       const auto rows = torch::zeros({g.size(), 4});
       g.all_to_all_single(rows, rows);
     },
     "all_to_all_single: input shares memory with output"},
    {"an exchange with splits in place",
     [](auto& g) {
       const auto rows = torch::zeros({g.size(), 4});
       const std::vector<std::int64_t> ones(g.size(), 1);
       g.all_to_all_single(rows, rows, ones, ones);
     },
     "all_to_all_single: input shares memory with output"},
    {"lists of an exchange",
     [](auto& g) {
       const Tensors rows = rows_of(g.size());
       g.all_to_all(Tensors(rows.rbegin(), rows.rend()), rows);
     },
     "all_to_all: inputs[0] shares memory with outputs[", 2},
    {"one output of an exchange twice",
     [](auto& g) { g.all_to_all(Tensors(g.size(), torch::zeros({4})), rows_of(g.size())); },
     "all_to_all: outputs[1] shares memory with outputs[0]", 2},
    {"one tensor twice in a sum",
     [](auto& g) {
       const auto tensor = torch::ones({4});
       g.all_reduce_coalesced({torch::ones({2}), tensor, tensor});
     },
     "all_reduce_coalesced: tensors[2] shares memory with tensors[1]"},
    {"parts of one tensor in a sum",
     [](auto& g) {
       const auto tensor = torch::ones({4, 4});
       g.all_reduce_coalesced({tensor.narrow(1, 0, 2), tensor.t(), torch::ones({2})});
     },
     "all_reduce_coalesced: tensors[1] shares memory with tensors[0]"},
    {"a tensor behind one that lies inside the first",
     [](auto& g) {
       const auto matrix = torch::zeros({4, 4});
       g.all_reduce_coalesced(
           {matrix.select(1, 0), matrix[0].narrow(0, 1, 2), matrix[2].narrow(0, 0, 2)});
     },
     "all_reduce_coalesced: tensors[2] shares memory with tensors[0]"},
    {"elements that meet halfway",
     [](auto& g) {
       const auto memory = torch::zeros({64}, torch::kUInt8);
       const std::vector<std::int64_t> sizes = {4}, strides = {2};
       const auto every_other = [&](std::int64_t first_byte) {
         return torch::from_blob(memory.mutable_data_ptr<std::uint8_t>() + first_byte, sizes,
                                 strides, torch::kFloat32);
       };
       g.all_reduce_coalesced({every_other(0), every_other(6)});
     },
     "all_reduce_coalesced: tensors[1] shares memory with tensors[0]"},
    {"one tensor as two types",
     [](auto& g) {
       const auto tensor = torch::ones({4});
       g.async_all_reduce_coalesced({tensor, tensor.view(torch::kInt32)});
     },
     "all_reduce_coalesced: tensors[1] shares memory with tensors[0]"},
    {"one tensor twice in a broadcast",
     [](auto& g) {
       const auto tensor = torch::ones({4});
       g.broadcast_coalesced({tensor, tensor.narrow(0, 1, 1)});
     },
     "broadcast_coalesced: tensors[1] shares memory with tensors[0]"},
    {"a repeated element", [](auto& g) { g.all_reduce(torch::ones({1}).expand({4})); },
     "all_reduce: tensor has several elements at one address"},
    {"rows that overlap",
     [](auto& g) { g.all_reduce(torch::ones({6}).as_strided({2, 4}, {2, 1})); },
     "all_reduce: tensor has several elements at one address (shape [2, 4], strides [2, 1])"},
    {"steps that meet again",
     [](auto& g) { g.async_all_reduce(torch::ones({25}).as_strided({3, 4}, {6, 4})); },
     "all_reduce: tensor has several elements at one address"},
    {"a repeated output",
     [](auto& g) {
       g.all_gather_into_tensor(torch::zeros({1, 4}).expand({g.size(), 4}), torch::ones({4}));
     },
     "all_gather_into_tensor: output has several elements at one address", 2},
    {"a repeated row of an output",
     [](auto& g) { g.scatter(torch::zeros({1}).expand({4}), {}, (g.rank() + 1) % g.size()); },
     "scatter: output has several elements at one address"},
};

TEST_P(CallTensors, ThatOverlapAreRefused) {
  run([](ProcessGroup group) {
    for (const OverlapCase& wrong : kOverlaps) {
      if (group.size() < wrong.smallest) continue;
      EXPECT_THAT(message_of<ConfigError>([&] { wrong.call(group); }), HasSubstr(wrong.expected))
          << wrong.name;
    }
    // Calls with lists on the root only.
    const int root = group.size() - 1;
    if (group.rank() == root && group.size() > 1) {
      const Tensors rows = rows_of(group.size());
      const Tensors twice(group.size(), rows[0]);
      EXPECT_THAT(message_of<ConfigError>([&] { group.gather(torch::ones({4}), twice, root); }),
                  HasSubstr("gather: outputs[1] shares memory with outputs[0]"));
      EXPECT_THAT(message_of<ConfigError>([&] { group.gather(rows[0], rows, root); }),
                  HasSubstr("gather: input shares memory with outputs[0]"));
      EXPECT_THAT(message_of<ConfigError>([&] { group.scatter(rows[0], rows, root); }),
                  HasSubstr("scatter: inputs[0] shares memory with output"));
    }
    auto tensor = torch::ones({3});  // nothing was sent: the group stays usable
    group.all_reduce(tensor);
    EXPECT_EQ(tensor.sum().item<float>(), 3 * group.size());
  });
}

TEST_P(CallTensors, OfOneBatchOfMessagesMayNotOverlap) {
  if (GetParam().size == 1) return;
  run([](ProcessGroup group) {
    using Kind = P2POp::Kind;
    const int left = (group.rank() + group.size() - 1) % group.size();
    const int right = (group.rank() + 1) % group.size();
    const auto tensor = torch::full({4}, group.rank());
    EXPECT_THAT(
        message_of<ConfigError>([&] {
          group.batch_isend_irecv({{Kind::kSend, tensor, right}, {Kind::kRecv, tensor, left}});
        }),
        HasSubstr("batch_isend_irecv: operations[0] shares memory with operations[1], "
                  "which this call writes"));
    EXPECT_THAT(message_of<ConfigError>([&] {
                  group.batch_isend_irecv({{Kind::kSend, torch::ones({2}), right},
                                           {Kind::kRecv, tensor.narrow(0, 0, 2), left},
                                           {Kind::kRecv, tensor.narrow(0, 1, 2), left}});
                }),
                HasSubstr("operations[2] shares memory with operations[1]"));
    // One tensor may be sent twice, and the columns of a matrix do not overlap.
    const auto received = torch::zeros({4, 2}, torch::kInt64);
    for (const auto& work : group.batch_isend_irecv({{Kind::kSend, tensor, right},
                                                     {Kind::kSend, tensor, right},
                                                     {Kind::kRecv, received.select(1, 0), left},
                                                     {Kind::kRecv, received.select(1, 1), left}})) {
      work->wait();
    }
    require_equal(received, torch::full({4, 2}, left), "columns");
  });
}

// A block of a matrix, with steps between its rows and columns.
torch::Tensor random_block(const torch::Tensor& matrix, std::mt19937& random) {
  torch::Tensor block = matrix;
  for (std::int64_t d = 0; d < 2; ++d) {
    const auto begin = static_cast<std::int64_t>(random() % 5);
    const auto end = begin + 1 + static_cast<std::int64_t>(random() % 3);
    block = block.slice(d, begin, end, 1 + static_cast<std::int64_t>(random() % 2));
  }
  return random() % 2 == 0 ? block : block.t();
}

// Two blocks of one matrix are refused if and only if an element is in both.
TEST(OverlapOfBlocks, IsThatOfTheirElements) {
  std::mt19937 random(7);
  const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
    int overlapping = 0;
    constexpr int kPairs = 2000;
    for (int i = 0; i < kPairs; ++i) {
      const auto matrix = torch::zeros({7, 7});
      const Tensors blocks = {random_block(matrix, random), random_block(matrix, random)};
      for (const auto& block : blocks) block.add_(1);
      const bool expected = matrix.max().item<float>() > 1;
      overlapping += expected ? 1 : 0;
      bool refused = false;
      try {
        group.all_reduce_coalesced(blocks);
      } catch (const ConfigError&) {
        refused = true;
      }
      if (refused == expected) continue;
      throw Error(
          str("pair ", i, " overlaps: ", expected, ", was refused: ", refused, '\n', matrix));
    }
    if (overlapping < kPairs / 10 || overlapping > kPairs / 10 * 9) {
      throw Error(str(overlapping, " of ", kPairs, " pairs overlap"));
    }
  });
  EXPECT_EQ(errors, no_errors(1));
}

// What a rank gives to itself may be in its place already, and elements may lie between those of
// other tensors.
TEST_P(CallTensors, MayLieInTheirOwnPlaceAndBetweenEachOther) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank();
    const auto type = torch::kFloat32;
    const auto mine = values({4}, type, rank);
    const auto expect_gathered = [&](const Tensors& outputs, const char* what) {
      for (int r = 0; r < size; ++r) {
        require_equal(outputs[static_cast<std::size_t>(r)], values({4}, type, r), what);
      }
    };
    const auto separate = [&] {
      Tensors tensors;
      for (int r = 0; r < size; ++r) tensors.push_back(torch::zeros({4}));
      return tensors;
    };
    const auto columns = [&] { return torch::zeros({4, size}).unbind(1); };
    const std::vector<std::pair<const char*, std::function<Tensors()>>> layouts = {
        {"rows", [&] { return rows_of(size); }}, {"columns", columns}, {"separate", separate}};
    const int root = size - 1;
    for (const auto& [what, make] : layouts) {
      Tensors outputs = make();
      const auto& own = outputs[static_cast<std::size_t>(rank)];
      own.copy_(mine);
      group.all_gather(outputs, own);
      expect_gathered(outputs, what);

      outputs = make();
      outputs[static_cast<std::size_t>(rank)].copy_(mine);
      group.gather(outputs[static_cast<std::size_t>(rank)], rank == root ? outputs : Tensors(),
                   root);
      if (rank == root) expect_gathered(outputs, what);

      if (rank != root) outputs[static_cast<std::size_t>(rank)].zero_();
      group.scatter(outputs[static_cast<std::size_t>(rank)], rank == root ? outputs : Tensors(),
                    root);
      require_equal(outputs[static_cast<std::size_t>(rank)], mine, what);

      Tensors inputs = make();
      for (int r = 0; r < size; ++r) {
        inputs[static_cast<std::size_t>(r)].copy_(values({4}, type, rank) + r);
      }
      group.reduce_scatter(inputs[static_cast<std::size_t>(rank)], inputs);
      require_equal(inputs[static_cast<std::size_t>(rank)],
                    reduced_values({4}, type, size, ReduceOp::kSum) + rank * size, what);

      // The piece for this rank itself is the same tensor on both sides.
      inputs = separate();
      outputs = make();
      for (int r = 0; r < size; ++r) inputs[static_cast<std::size_t>(r)].fill_(10 * rank + r);
      outputs[static_cast<std::size_t>(rank)].fill_(11 * rank);
      inputs[static_cast<std::size_t>(rank)] = outputs[static_cast<std::size_t>(rank)];
      group.all_to_all(outputs, inputs);
      for (int r = 0; r < size; ++r) {
        require_equal(outputs[static_cast<std::size_t>(r)], torch::full({4}, 10.0F * r + rank),
                      what);
      }
    }
    const auto whole = torch::zeros({size, 4});
    whole[rank].copy_(mine);
    group.all_gather_into_tensor(whole, whole[rank]);
    expect_gathered(whole.unbind(), "all_gather_into_tensor");
    group.reduce_scatter_tensor(whole[rank], whole);
    require_equal(whole[rank], mine * size, "reduce_scatter_tensor");
    // Inputs are only read and may overlap.
    auto sum = torch::zeros({4});
    group.reduce_scatter(sum, Tensors(size, mine));
    require_equal(sum, reduced_values({4}, type, size, ReduceOp::kSum), "one input for all ranks");
    // An element that is read repeatedly, between those that are written.
    const auto pairs = torch::ones({4, 2});
    const auto repeated = pairs.select(1, 1).narrow(0, 1, 1).expand({4});
    group.reduce_scatter(pairs.select(1, 0), Tensors(size, repeated));
    require_equal(pairs.select(1, 0), torch::full({4}, static_cast<float>(size)), "sums");
    require_equal(pairs.select(1, 1), torch::ones({4}), "beside them");
    // Strides that are not nested, but meet nowhere.
    const auto sparse = torch::ones({10}).as_strided({2, 3}, {3, 2});
    group.all_reduce(sparse);
    require_equal(sparse, torch::full({2, 3}, static_cast<float>(size)), "offsets 0 2 4 3 5 7");
  });
}

// --- Versions ------------------------------------------------------------------------------------

// A call that takes a tensor of shape [size, 4] for one of its arguments. Returns null if the call
// blocks.
struct VersionCase {
  const char* name;
  std::function<WorkPtr(ProcessGroup&, const torch::Tensor&)> call;
  std::function<bool(int rank, int size)> writes;  // whether this rank's tensor is written
  int smallest = 1;
};

bool always(int, int) { return true; }
bool never(int, int) { return false; }
bool on_rank_zero(int rank, int) { return rank == 0; }
bool elsewhere(int rank, int) { return rank != 0; }

WorkPtr blocking(const std::function<void()>& call) {
  call();
  return nullptr;
}

Tensors unbound(const torch::Tensor& tensor) { return tensor.unbind(); }

const std::vector<VersionCase> kVersionCases = {
    {"all_reduce", [](auto& g, auto& t) { return blocking([&] { g.all_reduce(t); }); }, always},
    {"async_all_reduce", [](auto& g, auto& t) { return g.async_all_reduce(t); }, always},
    {"all_reduce by messages",
     [](auto& g, auto& t) { return g.async_all_reduce(t, ReduceOp::kSum, Algorithm::kRing); },
     always},
    {"broadcast", [](auto& g, auto& t) { return blocking([&] { g.broadcast(t, 0); }); }, elsewhere},
    {"async_broadcast", [](auto& g, auto& t) { return g.async_broadcast(t, 0); }, elsewhere},
    {"reduce", [](auto& g, auto& t) { return blocking([&] { g.reduce(t, 0); }); }, on_rank_zero},
    {"async_reduce", [](auto& g, auto& t) { return g.async_reduce(t, 0); }, on_rank_zero},
    {"outputs of all_gather",
     [](auto& g, auto& t) { return g.async_all_gather(unbound(t), torch::ones({4})); }, always},
    {"input of all_gather",
     [](auto& g, auto& t) {
       return g.async_all_gather(torch::empty({g.size(), g.size(), 4}).unbind(), t);
     },
     never},
    {"output of all_gather_into_tensor",
     [](auto& g, auto& t) {
       return blocking([&] { g.all_gather_into_tensor(t, torch::ones({4})); });
     },
     always},
    {"outputs of gather",
     [](auto& g, auto& t) {
       return g.async_gather(torch::ones({4}), g.rank() == 0 ? unbound(t) : Tensors(), 0);
     },
     on_rank_zero},
    {"output of scatter",
     [](auto& g, auto& t) {
       const Tensors inputs(g.size(), torch::ones({g.size(), 4}));
       return g.async_scatter(t, g.rank() == 0 ? inputs : Tensors(), 0);
     },
     always},
    {"inputs of scatter",
     [](auto& g, auto& t) {
       return g.async_scatter(torch::empty({4}), g.rank() == 0 ? unbound(t) : Tensors(), 0);
     },
     never},
    {"output of reduce_scatter",
     [](auto& g, auto& t) {
       return g.async_reduce_scatter(t, Tensors(g.size(), torch::ones({g.size(), 4})));
     },
     always},
    {"input of reduce_scatter_tensor",
     [](auto& g, auto& t) { return g.async_reduce_scatter_tensor(torch::empty({4}), t); }, never},
    {"output of reduce_scatter_tensor",
     [](auto& g, auto& t) {
       return blocking([&] { g.reduce_scatter_tensor(t, torch::ones({g.size(), g.size(), 4})); });
     },
     always},
    {"outputs of all_to_all",
     [](auto& g, auto& t) { return g.async_all_to_all(unbound(t), rows_of(g.size())); }, always},
    {"output of all_to_all_single",
     [](auto& g, auto& t) { return g.async_all_to_all_single(t, torch::ones({g.size(), 4})); },
     always},
    {"input of all_to_all_single",
     [](auto& g, auto& t) { return g.async_all_to_all_single(torch::empty({g.size(), 4}), t); },
     never},
    {"all_reduce_coalesced",
     [](auto& g, auto& t) { return g.async_all_reduce_coalesced({torch::ones({2}), t}); }, always},
    {"broadcast_coalesced",
     [](auto& g, auto& t) { return g.async_broadcast_coalesced({t, torch::ones({2})}, 0); },
     elsewhere},
    {"consecutive tensors of all_reduce_coalesced",
     [](auto& g, auto& t) { return g.async_all_reduce_coalesced(unbound(t)); }, always},
    {"consecutive tensors of broadcast_coalesced",
     [](auto& g, auto& t) { return g.async_broadcast_coalesced(unbound(t), 0); }, elsewhere},
    {"a message",
     [](auto& g, auto& t) {
       if (g.rank() == 0) return g.isend(t, 1);
       if (g.rank() == 1) return g.irecv(t, 0);
       return WorkPtr();
     },
     [](int rank, int) { return rank == 1; }, 2},
    {"a message that blocks",
     [](auto& g, auto& t) {
       return blocking([&] {
         if (g.rank() == 0) g.send(t, 1);
         if (g.rank() == 1) g.recv(t, 0);
       });
     },
     [](int rank, int) { return rank == 1; }, 2},
    {"a batch of messages",
     [](auto& g, auto& t) {
       if (g.rank() > 1) return WorkPtr();
       const auto kind = g.rank() == 0 ? P2POp::Kind::kSend : P2POp::Kind::kRecv;
       return g.batch_isend_irecv({{kind, t, 1 - g.rank()}})[0];
     },
     [](int rank, int) { return rank == 1; }, 2},
};

// The result of exp() is saved for its backward.
TEST_P(CallTensors, ThatAreWrittenInvalidateSavedValues) {
  run([](ProcessGroup group) {
    const int size = group.size();
    for (const VersionCase& each : kVersionCases) {
      if (size < each.smallest) continue;
      for (const bool transposed : {false, true}) {
        const std::string what = each.name + std::string(transposed ? ", transposed" : "");
        auto x = torch::zeros(transposed ? at::IntArrayRef({4, size}) : at::IntArrayRef({size, 4}),
                              torch::requires_grad());
        const auto saved = x.exp();
        const auto work = each.call(group, transposed ? saved.t() : saved);
        if (work) work->wait();
        if (each.writes(group.rank(), size)) {
          EXPECT_THAT(message_of<c10::Error>([&] { saved.sum().backward(); }),
                      HasSubstr("modified by an inplace operation"))
              << what << " on rank " << group.rank();
        } else {
          saved.sum().backward();
          EXPECT_TRUE(x.grad().equal(torch::ones_like(x))) << what << " on rank " << group.rank();
        }
      }
    }
  });
}

// Memory that the ranks share, views of it, and tensors that lie side by side in it, each with its
// own version.
TEST_P(CallTensors, InAllocatedMemoryHaveNewVersionsToo) {
  run([](ProcessGroup group) {
    const auto memory = group.allocate({2, 4}, torch::kFloat32);
    const auto is_stale = [&](const torch::Tensor& factor, const std::function<void()>& call) {
      auto x = torch::ones({4}, torch::requires_grad());
      const auto product = (x * factor).sum();
      call();
      try {
        product.backward();
      } catch (const c10::Error&) {
        return true;
      }
      return false;
    };
    EXPECT_TRUE(is_stale(memory[0], [&] { group.all_reduce(memory); })) << "the whole";
    EXPECT_TRUE(is_stale(memory[1], [&] { group.all_reduce(memory[1]); })) << "a row";
    Tensors owners = {torch::empty({0}), torch::empty({0})};
    for (int i = 0; i < 2; ++i) owners[static_cast<std::size_t>(i)].set_data(memory[i]);
    for (const auto& owner : owners) {
      EXPECT_TRUE(is_stale(owner, [&] { group.all_reduce_coalesced(owners); })) << "an owner";
    }
    group.barrier();
  });
}

TEST_P(CallTensors, OfInferenceModeAreTakenAsBefore) {
  run([](ProcessGroup group) {
    torch::Tensor tensor;
    {
      const c10::InferenceMode guard;
      tensor = torch::ones({4});
      group.all_reduce(tensor);
    }
    group.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<int>(), group.size() * group.size());
  });
}

}  // namespace
}  // namespace lockstep
