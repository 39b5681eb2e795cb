// Point-to-point over every backend; ranks are threads.
#include <lockstep/comm/group/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <lockstep/core/error.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using namespace testing_support;

class Messages : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Messages, testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(Messages, ArriveWhateverTheirTypeSizeAndLayout) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    for (const auto type : {torch::kFloat32, torch::kBool, torch::kInt16, torch::kComplexDouble}) {
      for (const std::int64_t count : {0, 1, 1000, 300000}) {
        const auto tensor = values({count, 2}, type, 0);
        for (const Layout layout : all_layouts()) {
          const std::string what = lockstep::str(c10::toString(type), ' ', count);
          if (group.rank() == 0) {
            group.send(in_layout(tensor, layout), 1);
          } else {
            auto got = in_layout(torch::zeros_like(tensor), layout);
            EXPECT_EQ(group.recv(got, 0), 0);
            require_equal(got, tensor, what);
          }
        }
      }
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Messages, AreToldApartByTheirTags) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    std::vector<WorkPtr> works;
    Tensors tensors;
    for (int i = 0; i < 6; ++i) {
      // Rank 1 receives in the reverse order.
      const int tag = group.rank() == 0 ? i : 5 - i;
      tensors.push_back(group.rank() == 0 ? torch::full({50}, tag)
                                          : torch::zeros({50}, torch::kInt64));
      works.push_back(group.rank() == 0 ? group.isend(tensors.back(), 1, tag)
                                        : group.irecv(tensors.back(), 0, tag));
    }
    for (const auto& work : works) work->wait();
    for (int i = 0; i < 6; ++i) {
      const int tag = group.rank() == 0 ? i : 5 - i;
      require_equal(tensors[static_cast<std::size_t>(i)], torch::full({50}, tag), "tag");
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Gloo leaves 16 bits to them; shared memory takes every int that is not negative.
TEST_P(Messages, HaveTagsUpToTheLargest) {
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    const int largest = GetParam() == "shm" ? std::numeric_limits<int>::max() : 65535;
    const bool sends = group.rank() == 0;
    std::vector<WorkPtr> works;
    Tensors tensors;
    for (const int tag : {0, 1, largest - 1, largest}) {
      tensors.push_back(sends ? torch::full({3}, tag) : torch::zeros({3}, torch::kInt64));
      works.push_back(sends ? group.isend(tensors.back(), 1, tag)
                            : group.irecv(tensors.back(), 0, tag));
    }
    for (const auto& work : works) work->wait();
    std::size_t i = 0;
    for (const int tag : {0, 1, largest - 1, largest}) {
      require_equal(tensors[i++], torch::full({3}, tag), "tag");
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Messages, OfOneTagKeepTheirOrder) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    for (int i = 0; i < 20; ++i) {
      auto tensor = torch::full({3}, i);
      if (group.rank() == 0) {
        group.send(tensor, 1, 7);
      } else {
        tensor.zero_();
        group.recv(tensor, 0, 7);
        require_equal(tensor, torch::full({3}, i), "message");
      }
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Messages, ArriveFromAnySource) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    ProcessGroup group = world;
    if (world.backend() == "hierarchical") {
      // It has two transports, and neither can cancel a receive.
      EXPECT_THROW(world.recv(torch::zeros({4})), ConfigError);
      group = *world.new_group({0, 1, 2, 3}, "gloo");
      EXPECT_EQ(group.backend(), "gloo");
    }
    if (group.rank() != 0) {
      group.send(torch::full({4}, group.rank()), 0, 3);
    } else {
      std::vector<int> sources;
      for (int i = 1; i < group.size(); ++i) {
        auto tensor = torch::zeros({4}, torch::kInt64);
        const int source = group.recv(tensor, std::nullopt, 3);
        require_equal(tensor, torch::full({4}, source), "source");
        sources.push_back(source);
      }
      EXPECT_THAT(sources, testing::UnorderedElementsAre(1, 2, 3));
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Messages, OfABatchDoNotWaitForEachOther) {
  const auto errors = run_group(3, GetParam(), [](ProcessGroup group) {
    const int size = group.size();
    std::vector<P2POp> operations;
    Tensors received;
    // All ranks list their receives first: executed one after the other they would deadlock.
    for (int r = 0; r < size; ++r) {
      if (r == group.rank()) continue;
      received.push_back(torch::zeros({100000}, torch::kInt64));
      operations.push_back({P2POp::Kind::kRecv, received.back(), r, 1});
    }
    for (int r = 0; r < size; ++r) {
      if (r != group.rank()) {
        operations.push_back({P2POp::Kind::kSend, torch::full({100000}, group.rank()), r, 1});
      }
    }
    for (const auto& work : group.batch_isend_irecv(operations)) work->wait();
    std::size_t i = 0;
    for (int r = 0; r < size; ++r) {
      if (r != group.rank()) require_equal(received[i++], torch::full({100000}, r), "batch");
    }
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST_P(Messages, MayBeNone) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    EXPECT_TRUE(group.batch_isend_irecv({}).empty());
    const auto nothing = group.async_all_reduce_coalesced({});
    EXPECT_TRUE(nothing->is_completed());
    EXPECT_EQ(nothing->error(), nullptr);
    group.broadcast_coalesced({}, 1);
    auto tensor = torch::ones({2});
    group.all_reduce(tensor);
    require_equal(tensor, torch::full({2}, 2.0F), "sum");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Messages, AndCollectivesRunBesideEachOther) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup group) {
    const int peer = 1 - group.rank();
    for (int i = 0; i < 10; ++i) {
      auto sum = torch::full({1000}, 1.0F);
      auto got = torch::zeros({100}, torch::kInt64);
      const auto message = group.irecv(got, peer, 2);
      const auto collective = group.async_all_reduce(sum);
      const auto sent = torch::full({100}, i + group.rank());
      const auto sending = group.isend(sent, peer, 2);
      collective->wait();
      message->wait();
      sending->wait();
      require_equal(sum, torch::full({1000}, 2.0F), "sum");
      require_equal(got, torch::full({100}, i + peer), "message");
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
