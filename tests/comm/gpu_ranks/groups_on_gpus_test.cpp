// Groups of ranks on GPUs: groups made from a group over NCCL, and ranks of one GPU whose tensors
// are reduced in host memory.
#include <lockstep/comm/group/process_group.h>

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::GpuRanksOutcome;
using testing_support::kOneToEightRanks;
using testing_support::name_of_ranks;
using testing_support::no_errors;
using testing_support::run_group_on_gpus;

class NcclGroups : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclGroups, kOneToEightRanks, name_of_ranks);

// The sum of the members' ranks in the first group.
void require_gpu_sum(ProcessGroup& group, int world_rank, torch::Device gpu, const char* what) {
  LOCKSTEP_CHECK(group.backend() == "nccl", what, " is over ", group.backend());
  int expected = 0;
  for (const int member : group.world_ranks()) expected += member;
  const torch::Tensor tensor = torch::full({5}, world_rank, gpu);
  group.all_reduce(tensor);
  LOCKSTEP_CHECK(tensor.eq(expected).all().item<bool>(), what, ": the sum is ",
                 tensor[0].item<int>(), ", expected ", expected);
}

void check_nested_groups(ProcessGroup world, torch::Device gpu) {
  const int rank = world.rank(), size = world.size();
  auto row = *world.split(rank / 2);
  auto column = *world.split(rank % 2);
  require_gpu_sum(row, rank, gpu, "a row");
  require_gpu_sum(column, rank, gpu, "a column");
  std::vector<int> backwards;
  for (int each = row.size() - 1; each >= 0; --each) backwards.push_back(each);
  auto inner = *row.new_group(backwards);
  LOCKSTEP_CHECK(inner.rank() == row.size() - 1 - row.rank(), "another order of a nested group");
  require_gpu_sum(inner, rank, gpu, "a nested group");

  auto turned = *world.split(/*color=*/7, /*key=*/-rank);
  LOCKSTEP_CHECK(turned.rank() == size - 1 - rank, "the order by keys");
  require_gpu_sum(turned, rank, gpu, "a group by keys");

  // Both are under way at once, and each rank waits for them in another order.
  const torch::Tensor one = torch::full({50000}, rank, gpu), other = one.clone();
  const WorkPtr in_row = row.async_all_reduce(one), in_column = column.async_all_reduce(other);
  (rank % 2 == 0 ? in_row : in_column)->wait();
  (rank % 2 == 0 ? in_column : in_row)->wait();
  int of_row = 0, of_column = 0;
  for (const int member : row.world_ranks()) of_row += member;
  for (const int member : column.world_ranks()) of_column += member;
  LOCKSTEP_CHECK(one.eq(of_row).all().item<bool>() && other.eq(of_column).all().item<bool>(),
                 "overlapping groups");
}

void check_groups_of_some(ProcessGroup world, torch::Device gpu) {
  const int rank = world.rank(), size = world.size();
  const bool is_left_out = size > 1 && rank == 0;
  auto most = world.split(is_left_out ? -1 : 0);
  LOCKSTEP_CHECK(most.has_value() != is_left_out, "a negative color");
  if (most) require_gpu_sum(*most, rank, gpu, "all but rank 0");

  const std::vector<int> ends = size > 1 ? std::vector<int>{size - 1, 0} : std::vector<int>{0};
  std::optional<ProcessGroup> grandchild;
  {
    auto pair = world.new_group(ends);
    LOCKSTEP_CHECK(pair.has_value() == (rank == 0 || rank == size - 1), "a group of two");
    if (pair) grandchild = pair->split(0);
  }
  if (grandchild) require_gpu_sum(*grandchild, rank, gpu, "a group without its parent");

  auto over_gloo = world.new_group(ends, "gloo");
  if (!over_gloo) return;
  const torch::Tensor tensor = torch::full({4}, rank + 1, gpu);
  over_gloo->all_reduce(tensor);
  LOCKSTEP_CHECK(tensor.eq(size > 1 ? size + 1 : 1).all().item<bool>(), "over gloo");
}

TEST_P(NcclGroups, NestOverlapLeaveRanksOutAndOutliveTheirParents) {
  expect_success({{"nested", check_nested_groups}, {"of some ranks", check_groups_of_some}});
}

// Backend auto chooses shared memory if ranks share a GPU, and NCCL if each has its own.
TEST_P(NcclGroups, OfRanksThatShareAGpuReduceInHostMemoryByDefault) {
  const testing_support::CapturedLog log;  // each rank has a copy
  const int size = GetParam();
  ProcessGroupOptions options = testing_support::nccl_options();
  options.backend = "auto";
  const GpuRanksOutcome outcome = run_group_on_gpus(
      size,
      [&](ProcessGroup group, torch::Device gpu) {
        const bool share = group.backend() == "shm";
        const int devices = static_cast<int>(torch::cuda::device_count());
        LOCKSTEP_CHECK(group.size() == 1 || share == (devices < group.size()), group.backend());
        if (group.rank() == 0 && share && log.lines().empty()) {
          throw Error("no warning of the GPU that is shared");
        }
        const auto bucket = group.allocate({1 << 20}, torch::kFloat32);
        LOCKSTEP_CHECK(bucket.device() == gpu, "allocated on ", bucket.device());
        bucket.fill_(group.rank() + 1);
        const auto work = group.async_all_reduce(bucket, ReduceOp::kAverage);
        const auto more = torch::full({3}, group.rank(), gpu);
        const auto more_work = group.async_broadcast(more, group.size() - 1);
        more_work->wait();
        work->wait();
        LOCKSTEP_CHECK(bucket.eq((group.size() + 1) / 2.0).all().item<bool>(), "wrong mean");
        LOCKSTEP_CHECK(more.eq(group.size() - 1).all().item<bool>(), "wrong broadcast");
      },
      options);
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  EXPECT_EQ(outcome.errors, no_errors(size));
}

}  // namespace
}  // namespace lockstep
