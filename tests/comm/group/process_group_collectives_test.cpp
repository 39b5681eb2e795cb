// Every collective over every backend, compared with a single-process computation; ranks are
// threads.
#include <lockstep/comm/group/process_group.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using namespace testing_support;

struct Setting {
  std::string backend;
  int size;
};

class Collectives : public ::testing::TestWithParam<Setting> {
 protected:
  /// Runs on all ranks and fails the test with the ranks' errors.
  void run(const std::function<void(ProcessGroup)>& body) {
    EXPECT_EQ(run_group(GetParam().size, GetParam().backend, body), no_errors(GetParam().size));
  }
};
INSTANTIATE_TEST_SUITE_P(All, Collectives,
                         ::testing::Values(Setting{"shm", 3}, Setting{"gloo", 3},
                                           Setting{"auto", 1}, Setting{"shm", 5},
                                           Setting{"hierarchical", 4}, Setting{"hierarchical", 5}),
                         [](const auto& info) {
                           const std::string name =
                               info.param.size == 1 ? "single" : info.param.backend;
                           return lockstep::str(name, info.param.size);
                         });

const std::vector<torch::ScalarType> kTypes = {
    torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
    torch::kInt16,   torch::kInt32,   torch::kInt64,   torch::kUInt8,    torch::kBool};
const std::vector<ReduceOp> kOps = {
    ReduceOp::kSum,       ReduceOp::kProduct,    ReduceOp::kMin,
    ReduceOp::kMax,       ReduceOp::kAverage,    ReduceOp::kBitwiseAnd,
    ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(0.5)};

bool is_defined(torch::ScalarType type, ReduceOp op) {
  using Kind = ReduceOp::Kind;
  const bool bitwise =
      op.kind == Kind::kBitwiseAnd || op.kind == Kind::kBitwiseOr || op.kind == Kind::kBitwiseXor;
  const bool fractional = op.kind == Kind::kAverage || op.kind == Kind::kPreMultipliedSum;
  return c10::isFloatingType(type) ? !bitwise : !fractional;
}

std::string case_name(torch::ScalarType type, ReduceOp op) {
  return lockstep::str(c10::toString(type), ' ', reduce_op_name(op.kind));
}

TEST_P(Collectives, ReduceEveryTypeByEveryOperation) {
  run([](ProcessGroup group) {
    const std::vector<std::int64_t> shape = {4, 9};
    for (const auto type : kTypes) {
      for (const ReduceOp op : kOps) {
        const auto mine = values(shape, type, group.rank());
        auto tensor = mine.clone();
        if (!is_defined(type, op)) {
          EXPECT_THROW(group.all_reduce(tensor, op), ConfigError) << case_name(type, op);
          continue;
        }
        const auto expected = reduced_values(shape, type, group.size(), op);
        group.all_reduce(tensor, op);
        require_equal(tensor, expected, "all_reduce " + case_name(type, op));

        tensor.copy_(mine);
        const int root = group.size() - 1;
        group.reduce(tensor, root, op);
        require_equal(tensor, group.rank() == root ? expected : mine,
                      "reduce " + case_name(type, op));

        auto output = torch::empty({9}, type);
        auto input = values({group.size(), 9}, type, group.rank());
        group.reduce_scatter_tensor(output, input, op);
        require_equal(output,
                      reduced_values({group.size(), 9}, type, group.size(), op)[group.rank()],
                      "reduce_scatter " + case_name(type, op));
      }
    }
  });
}

TEST_P(Collectives, AddComplexNumbers) {
  run([](ProcessGroup group) {
    const int size = group.size();
    const auto make = [&](int rank) {
      return torch::complex(values({size, 3}, torch::kFloat32, rank),
                            values({size, 3}, torch::kFloat32, rank + 7));
    };
    auto sum = torch::zeros_like(make(0));
    for (int r = 0; r < size; ++r) sum += make(r);
    const auto mine = make(group.rank());

    auto tensor = mine.clone();
    group.all_reduce(tensor);
    require_equal(tensor, sum, "all_reduce");
    tensor = mine.clone().t().contiguous().t();
    group.all_reduce(tensor, ReduceOp::kAverage);
    EXPECT_TRUE(torch::allclose(tensor, sum / size)) << "average";
    tensor = mine.clone();
    group.all_reduce_coalesced({tensor});
    require_equal(tensor, sum, "all_reduce_coalesced");
    tensor = mine.clone();
    group.reduce(tensor, 0);
    require_equal(tensor, group.rank() == 0 ? sum : mine, "reduce");
    auto output = torch::zeros({3}, torch::kComplexFloat);
    group.reduce_scatter_tensor(output, mine);
    require_equal(output, sum[group.rank()], "reduce_scatter_tensor");
    output.zero_();
    group.reduce_scatter(output, mine.unbind());
    require_equal(output, sum[group.rank()], "reduce_scatter");
    EXPECT_THROW(group.reduce(tensor, 0, ReduceOp::kMax), ConfigError);
  });
}

TEST_P(Collectives, MoveEveryType) {
  run([](ProcessGroup group) {
    auto types = kTypes;
    types.push_back(torch::kComplexFloat);
    for (const auto type : types) {
      const int rank = group.rank();
      const int size = group.size();
      const std::string name = c10::toString(type);
      const int root = size / 2;
      auto tensor = values({2, 3}, type, rank);
      group.broadcast(tensor, root);
      require_equal(tensor, values({2, 3}, type, root), "broadcast " + name);

      auto all = torch::empty({size, 2, 3}, type);
      group.all_gather_into_tensor(all, values({2, 3}, type, rank));
      for (int r = 0; r < size; ++r)
        require_equal(all[r], values({2, 3}, type, r), "all_gather " + name);

      auto exchanged = torch::empty({size, 4}, type);
      group.all_to_all_single(exchanged, values({size, 4}, type, rank));
      for (int r = 0; r < size; ++r) {
        require_equal(exchanged[r], values({size, 4}, type, r)[rank], "all_to_all " + name);
      }
    }
  });
}

TEST_P(Collectives, TakeTensorsOfAnyShapeAndLayout) {
  run([](ProcessGroup group) {
    const auto type = torch::kFloat32;
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {}, {1}, {0}, {3, 0}, {7}, {1000, 3}, {2, 3, 4, 5}}) {
      for (const Layout layout : all_layouts()) {
        const std::string what =
            lockstep::str("layout ", static_cast<int>(layout), " of ", at::IntArrayRef(shape));
        const auto mine = values(shape, type, group.rank());
        const int root = group.size() - 1;

        auto tensor = in_layout(mine, layout);
        group.all_reduce(tensor);
        require_equal(tensor, reduced_values(shape, type, group.size(), ReduceOp::kSum),
                      "all_reduce " + what);

        tensor = in_layout(mine, layout);
        group.broadcast(tensor, root);
        require_equal(tensor, values(shape, type, root), "broadcast " + what);

        tensor = in_layout(mine, layout);
        Tensors outputs;
        for (int r = 0; r < group.size(); ++r)
          outputs.push_back(in_layout(torch::zeros(shape), layout));
        group.all_gather(outputs, tensor);
        for (int r = 0; r < group.size(); ++r) {
          require_equal(outputs[static_cast<std::size_t>(r)], values(shape, type, r),
                        "all_gather " + what);
        }
        require_equal(tensor, mine, "input of all_gather " + what);

        Tensors inputs;
        for (int r = 0; r < group.size(); ++r) inputs.push_back(in_layout(mine + r, layout));
        auto output = in_layout(torch::zeros(shape), layout);
        group.reduce_scatter(output, inputs);
        require_equal(
            output,
            reduced_values(shape, type, group.size(), ReduceOp::kSum) + group.rank() * group.size(),
            "reduce_scatter " + what);
      }
    }
  });
}

TEST_P(Collectives, KeepTheOrderOfChannelsLast) {
  run([](ProcessGroup group) {
    auto tensor = values({2, 3, 4, 5}, torch::kFloat32, group.rank())
                      .contiguous(at::MemoryFormat::ChannelsLast);
    const void* memory = tensor.data_ptr();
    group.all_reduce(tensor);
    require_equal(
        tensor, reduced_values({2, 3, 4, 5}, torch::kFloat32, group.size(), ReduceOp::kSum), "sum");
    EXPECT_TRUE(tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(tensor.data_ptr(), memory);
  });
}

TEST_P(Collectives, LeaveWhatLiesBesideAView) {
  run([](ProcessGroup group) {
    auto base = torch::full({6, 6}, group.rank() + 1.0F);
    group.all_reduce(base.select(1, 2));
    const float sum = static_cast<float>(group.size() * (group.size() + 1)) / 2;
    auto expected = torch::full({6, 6}, group.rank() + 1.0F);
    expected.select(1, 2).fill_(sum);
    require_equal(base, expected, "a column");
  });
}

TEST_P(Collectives, GatherAndScatterLists) {
  run([](ProcessGroup group) {
    const auto type = torch::kInt32;
    const int size = group.size();
    for (int root = 0; root < size; ++root) {
      for (const bool in_one_memory : {true, false}) {
        const bool is_root = group.rank() == root;
        auto memory = torch::zeros({size, 5}, type);
        Tensors list;
        for (int r = 0; is_root && r < size; ++r) {
          list.push_back(in_one_memory ? memory[r] : torch::zeros({5}, type));
        }
        group.gather(values({5}, type, group.rank()), list, root);
        for (int r = 0; is_root && r < size; ++r) {
          require_equal(list[static_cast<std::size_t>(r)], values({5}, type, r), "gather");
          list[static_cast<std::size_t>(r)].add_(r);
        }
        auto output = torch::zeros({5}, type);
        group.scatter(output, list, root);
        require_equal(output, values({5}, type, group.rank()) + group.rank(), "scatter");
      }
    }
  });
}

// Rank s sends (s + 2 r) % 4 rows to rank r: some pairs send nothing.
std::int64_t rows(int source, int destination) { return (source + 2 * destination) % 4; }

TEST_P(Collectives, ExchangeUnevenPieces) {
  run([](ProcessGroup group) {
    const int rank = group.rank();
    const auto piece = [](int source, int destination) {
      return values({rows(source, destination), 3}, torch::kFloat64, 10 * source + destination);
    };
    Tensors inputs;
    Tensors expected;
    std::vector<std::int64_t> input_splits;
    std::vector<std::int64_t> output_splits;
    for (int r = 0; r < group.size(); ++r) {
      inputs.push_back(piece(rank, r));
      expected.push_back(piece(r, rank));
      input_splits.push_back(rows(rank, r));
      output_splits.push_back(rows(r, rank));
    }
    auto output = torch::zeros_like(torch::cat(expected));
    group.all_to_all_single(output, torch::cat(inputs), output_splits, input_splits);
    require_equal(output, torch::cat(expected), "all_to_all_single");

    Tensors outputs;
    for (const auto& tensor : expected) outputs.push_back(torch::zeros_like(tensor));
    group.all_to_all(outputs, inputs);
    require_equal(torch::cat(outputs), torch::cat(expected), "all_to_all");
  });
}

TEST_P(Collectives, ReduceAndBroadcastManyTensorsAtOnce) {
  run([](ProcessGroup group) {
    const auto make = [&](int rank) {
      auto tensors =
          Tensors{values({3}, torch::kFloat32, rank), values({2, 2}, torch::kInt64, rank),
                  values({}, torch::kFloat32, rank), values({4, 6}, torch::kFloat32, rank)};
      tensors[3] = in_layout(tensors[3], Layout::kTransposed);
      return tensors;
    };
    auto tensors = make(group.rank());
    group.all_reduce_coalesced(tensors);
    const auto last = make(group.size() - 1);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      require_equal(
          tensors[i],
          reduced_values(last[i].sizes(), last[i].scalar_type(), group.size(), ReduceOp::kSum),
          lockstep::str("sum ", i));
    }
    tensors = make(group.rank());
    group.broadcast_coalesced(tensors, group.size() - 1);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      require_equal(tensors[i], last[i], lockstep::str("broadcast ", i));
    }
    group.all_reduce_coalesced({});
  });
}

TEST_P(Collectives, RunInOrderWhenStartedTogether) {
  run([](ProcessGroup group) {
    const int size = group.size();
    Tensors tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 12; ++i) {
      tensors.push_back(torch::full({i * 300 + 1}, group.rank() + i));
      works.push_back(group.async_all_reduce(tensors.back()));
      tensors.push_back(torch::full({4, 6}, group.rank() + i).t());
      works.push_back(group.async_broadcast(tensors.back(), i % size));
      works.push_back(group.async_barrier());
    }
    // Completes some by polling and some by waiting, not in the order in which they were started.
    for (std::size_t i = 0; i < works.size(); i += 2) {
      while (!works[i]->is_completed()) std::this_thread::yield();
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) {
      (*work)->wait();
      (*work)->wait();
      EXPECT_EQ((*work)->error(), nullptr);
    }
    for (int i = 0; i < 12; ++i) {
      const auto place = static_cast<std::size_t>(2 * i);
      require_equal(tensors[place], torch::full({i * 300 + 1}, size * (size - 1) / 2 + size * i),
                    "sum");
      require_equal(tensors[place + 1], torch::full({6, 4}, i % size + i), "broadcast");
    }
  });
}

// Each rank's threads race. Which of their calls meet is open, but all have the same result.
TEST_P(Collectives, StartInTheOrderOfTheirNumbersOnSeveralThreads) {
  run([](ProcessGroup group) {
    std::vector<std::string> errors(2);
    const auto reduce = [&](std::size_t thread) {
      try {
        for (int i = 0; i < 100; ++i) {
          const torch::Tensor ones = torch::ones({100});
          if (i % 2 == 0) {
            group.all_reduce(ones);
          } else {
            group.async_all_reduce(ones)->wait();
          }
          LOCKSTEP_CHECK(ones.equal(torch::full({100}, static_cast<float>(group.size()))), i);
        }
      } catch (const std::exception& error) {
        errors[thread] = error.what();
      }
    };
    std::thread other([&] { reduce(1); });
    reduce(0);
    other.join();
    LOCKSTEP_CHECK(errors == std::vector<std::string>(2), errors[0], " | ", errors[1]);
  });
}

// Strides that belong to no memory format may differ between ranks.
TEST_P(Collectives, MeanElementsWhateverTheirOrderInMemory) {
  run([](ProcessGroup group) {
    const int size = group.size();
    const auto numbers = torch::arange(12, torch::kFloat32).view({3, 4});
    auto tensor = group.rank() == 0 ? numbers.clone() : torch::zeros({4, 3}).t();
    group.broadcast(tensor, 0);
    require_equal(tensor, numbers, "broadcast");
    group.all_reduce(tensor);
    require_equal(tensor, numbers * size, "all_reduce");
  });
}

TEST_P(Collectives, CommunicateInAllocatedMemory) {
  run([](ProcessGroup group) {
    auto buffer = group.allocate({5, 7}, torch::kFloat32);
    require_equal(buffer, torch::zeros({5, 7}), "allocate");
    buffer.fill_(group.rank() * 10);
    group.broadcast(buffer, group.size() - 1);
    require_equal(buffer, torch::full({5, 7}, (group.size() - 1) * 10.0F), "broadcast");
    buffer[3].fill_(group.rank() + 1);
    group.all_reduce(buffer[3], ReduceOp::kAverage);
    require_equal(buffer[3], torch::full({7}, (group.size() + 1) / 2.0F), "a row");
    require_equal(buffer[2], torch::full({7}, (group.size() - 1) * 10.0F), "the row beside it");
    group.barrier();
  });
}

// A sharded optimizer makes these calls: the output of reduce_scatter and the input of all_gather
// are this rank's own piece, at a different offset on each rank.
TEST_P(Collectives, WorkInPlaceOnPiecesOfAllocatedMemory) {
  run([](ProcessGroup group) {
    const int size = group.size();
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      const auto whole = group.allocate({size, 1000}, type);
      whole.copy_(values({size, 1000}, type, group.rank()));
      const auto own = whole[group.rank()];
      group.reduce_scatter_tensor(own, whole, ReduceOp::kAverage);
      const auto means = reduced_values({size, 1000}, type, size, ReduceOp::kAverage);
      require_equal(own, means[group.rank()], "reduce_scatter_tensor");
      group.all_gather_into_tensor(whole, own);
      require_equal(whole, means, "all_gather_into_tensor");
      group.barrier();
    }
  });
}

// If the ranks share memory, rank r writes column r of every rank's matrix.
TEST_P(Collectives, SeeTheirPeersAllocatedMemory) {
  run([](ProcessGroup group) {
    const auto whole = group.allocate({7, 8}, torch::kFloat64);
    const auto part = whole.narrow(0, 1, 5).t();  // not at the start, not contiguous
    const Tensors views = group.peer_views(part);
    const bool shared = group.backend() == "shm" || group.size() == 1;
    ASSERT_EQ(views.size(), shared ? group.size() : 0);
    if (!shared) return;
    EXPECT_TRUE(views[group.rank()].is_same(part));
    for (const auto& view : views) {
      EXPECT_EQ(view.strides(), part.strides());
      view.select(1, group.rank()).fill_(group.rank() + 1);
    }
    group.barrier();
    for (const auto& view : views) require_equal(view, part, "what all have written");
    for (int rank = 0; rank < group.size(); ++rank) {
      EXPECT_EQ(part[3][rank].item<double>(), rank + 1);
    }
    EXPECT_EQ(whole[0].abs().sum().item<double>(), 0);
    group.barrier();
  });
}

TEST(PeerViews, AreOfAllocatedMemoryAndHoldIt) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    EXPECT_TRUE(group.peer_views(torch::ones({4})).empty()) << "of anywhere";
    EXPECT_TRUE(group.peer_views(torch::Tensor()).empty()) << "of no tensor";
    EXPECT_TRUE(group.peer_views(torch::eye(3).to_sparse()).empty()) << "of no dense tensor";
    EXPECT_TRUE(group.peer_views(group.allocate({4}, torch::kInt32).narrow(0, 2, 0)).empty())
        << "of no element";
    Tensors views = group.peer_views(group.allocate({1000}, torch::kInt32).fill_(group.rank() + 5));
    ASSERT_EQ(views.size(), 2);
    const auto other = views[1 - group.rank()];
    views.clear();  // also drops the registration of this rank's part
    group.barrier();
    EXPECT_TRUE(group.peer_views(other).empty()) << "of a peer's part";
    require_equal(other, torch::full({1000}, 6 - group.rank(), torch::kInt32), "held by the view");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Sizes beyond the address space, so that no implementation touches any memory.
TEST_P(Collectives, RefuseToAllocateWhatCannotBe) {
  run([](ProcessGroup group) {
    const auto refusal = [&](at::IntArrayRef shape) {
      return testing_support::message_of<ConfigError>(
          [&] { group.allocate(shape, torch::kFloat32); });
    };
    EXPECT_THAT(refusal({std::int64_t{1} << 48}),
                ::testing::MatchesRegex("[^\n]*allocate: 1125899906842624 bytes [^\n]* has [0-9]+ "
                                        "bytes of memory left; give a smaller shape[^\n]*"));
    EXPECT_EQ(refusal({3, -3}), "allocate: no tensor has the shape [3, -3]");
    EXPECT_EQ(refusal({std::int64_t{1} << 62, 2}),
              "allocate: no tensor has the shape [4611686018427387904, 2]");
    group.barrier();
    require_equal(group.allocate({4}, torch::kFloat32), torch::zeros({4}), "the group goes on");
  });
}

TEST_P(Collectives, TakeTensorsThatRequireGradients) {
  run([](ProcessGroup group) {
    auto weight = torch::ones({2, 3}, torch::requires_grad());
    group.all_reduce(weight);
    EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
    require_equal(weight.detach(), torch::full({2, 3}, static_cast<float>(group.size())),
                  "contiguous");
    auto strided = torch::ones({3, 2}, torch::requires_grad());
    group.all_reduce(strided.detach().select(1, 1));
    require_equal(strided.detach().select(1, 0), torch::ones({3}), "beside");
  });
}

TEST_P(Collectives, RunEveryAlgorithm) {
  run([](ProcessGroup group) {
    for (const Algorithm algorithm : all_algorithms()) {
      for (const std::int64_t count : {0, 1, 2, 1000}) {
        auto tensor = values({count}, torch::kFloat32, group.rank());
        group.all_reduce(tensor, ReduceOp::kAverage, algorithm);
        require_equal(tensor,
                      reduced_values({count}, torch::kFloat32, group.size(), ReduceOp::kAverage),
                      algorithm_name(algorithm));
      }
    }
  });
}

TEST_P(Collectives, ExchangeObjects) {
  run([](ProcessGroup group) {
    const auto object = [](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 100, 'a') + '\0';
    };
    const int size = group.size();
    const int last = size - 1;
    std::vector<std::string> all;
    for (int r = 0; r < size; ++r) all.push_back(object(r));
    EXPECT_EQ(group.all_gather_object(object(group.rank())), all);
    EXPECT_EQ(group.gather_object(object(group.rank()), last),
              group.rank() == last ? all : std::vector<std::string>{});
    EXPECT_EQ(group.broadcast_object(object(group.rank()), last), object(last));
    EXPECT_EQ(group.scatter_object(group.rank() == last ? all : std::vector<std::string>{}, last),
              object(group.rank()));
    EXPECT_EQ(group.all_gather_object(""),
              std::vector<std::string>(static_cast<std::size_t>(size)));
  });
}

}  // namespace
}  // namespace lockstep
