// Every collective over NCCL with 1 to 8 ranks, compared with arithmetic in one process on the CPU.
#include <lockstep/comm/group/process_group.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/comm/tensors.h>
#include <tests/support/devices/gpu_ranks.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing_support::kOneToEightRanks;
using testing_support::name_of_ranks;
using testing_support::reduce_ops;
using testing_support::reduced_values;
using testing_support::reducible_types;
using testing_support::require_equal;
using testing_support::values;

// Ranks of one GPU take turns, so that a collective of eight of them takes a tenth of a second.
// Beyond this number of ranks a test makes a third of its calls, or uses fewer types.
constexpr int kManyGpuRanks = 4;
constexpr std::int64_t kPieceOnGpu = 37;

class NcclCollectives : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, kOneToEightRanks, name_of_ranks);

// Each pair of a type and an operation is given to each collective that reduces, or, with many
// ranks, to one of the three.
TEST_P(NcclCollectives, ReduceEveryTypeWithEveryOperation) {
  expect_success([](ProcessGroup group, torch::Device gpu) {
    LOCKSTEP_CHECK(group.backend() == "nccl", group.backend());
    const int rank = group.rank(), size = group.size();
    int number = 0;
    for (const auto type : reducible_types()) {
      for (const ReduceOp& op : reduce_ops()) {
        if (!comm::why_not_reducible(comm::data_type_of(type), op).empty()) continue;
        const std::string what =
            str(" of ", comm::type_name(type), ", ", reduce_op_name(op.kind), " on rank ", rank);
        const auto is_given_to = [&](int collective) {
          return size <= kManyGpuRanks || number % 3 == collective;
        };
        const torch::Tensor expected = reduced_values({kPieceOnGpu}, type, size, op);
        if (is_given_to(0)) {
          const torch::Tensor tensor = values({kPieceOnGpu}, type, rank).to(gpu);
          group.all_reduce(tensor, op);
          require_equal(tensor.cpu(), expected, "all_reduce" + what);
        }
        if (is_given_to(1)) {
          const int root = number % size;
          const torch::Tensor own = values({kPieceOnGpu}, type, rank);
          const torch::Tensor tensor = own.to(gpu);
          group.reduce(tensor, root, op);
          require_equal(tensor.cpu(), rank == root ? expected : own, "reduce" + what);
        }
        if (is_given_to(2)) {
          const torch::Tensor input = values({size, kPieceOnGpu}, type, rank).to(gpu);
          const torch::Tensor output = torch::empty_like(input[0]);
          group.reduce_scatter_tensor(output, input, op);
          require_equal(output.cpu(), reduced_values({size, kPieceOnGpu}, type, size, op)[rank],
                        "reduce_scatter" + what);
        }
        ++number;
      }
    }
  });
}

// Tensors of more elements than NCCL sends at once, in memory that it has registered if it can, of
// complex numbers, with gaps, and without elements.
void check_gpu_shapes(ProcessGroup group, torch::Device gpu) {
  constexpr std::int64_t kLarge = 1 << 20;
  const int rank = group.rank(), size = group.size();
  const double mean = (size + 1) / 2.0;
  const torch::Tensor bucket = group.allocate({kLarge}, torch::kFloat32);
  LOCKSTEP_CHECK(bucket.device() == gpu && !group.shares_memory(), bucket.device());
  bucket.fill_(rank + 1);
  const WorkPtr work = group.async_all_reduce(bucket, ReduceOp::kAverage);
  const torch::Tensor more = torch::full({3}, rank, gpu);
  const WorkPtr more_work = group.async_broadcast(more, size - 1);
  more_work->wait();
  work->wait();
  LOCKSTEP_CHECK(bucket.eq(mean).all().item<bool>(), "the mean is ", bucket[0].item<double>());
  LOCKSTEP_CHECK(more.eq(size - 1).all().item<bool>(), "broadcast ", more);
  bucket.fill_(rank + 1);
  const torch::Tensor own = bucket.chunk(size)[static_cast<std::size_t>(rank)];
  group.reduce_scatter_tensor(own, bucket, ReduceOp::premultiplied_sum(0.5));
  LOCKSTEP_CHECK(own.eq(0.5 * mean * size).all().item<bool>(), "the sum is ", own[0]);

  const torch::Tensor wave = torch::polar(torch::ones({5}), torch::arange(5) * 0.3);
  const torch::Tensor complex = (wave * (rank + 1)).to(gpu);
  group.all_reduce(complex, ReduceOp::kAverage);
  require_equal(torch::view_as_real(complex).cpu(), torch::view_as_real(wave * mean), "complex");
  const torch::Tensor transposed = torch::full({4, 3}, rank + 1, gpu).t();
  group.all_reduce(transposed);
  LOCKSTEP_CHECK(transposed.eq(mean * size).all().item<bool>(), "a view");
  group.all_reduce(torch::empty({0}, gpu));
}

// What rank `from` sends to rank `to` in a scatter or an all_to_all.
torch::Tensor piece_between(int from, int to, torch::ScalarType type) {
  return values({kPieceOnGpu}, type, 3 * from + to);
}

void check_gpu_moves(ProcessGroup& group, torch::Device gpu, torch::ScalarType type) {
  const int rank = group.rank(), size = group.size(), root = size - 1;
  const std::string what = str(" of ", comm::type_name(type), " on rank ", rank);
  const torch::Tensor own = values({kPieceOnGpu}, type, rank).to(gpu);
  Tensors of_all, sent, received;
  for (int each = 0; each < size; ++each) {
    of_all.push_back(values({kPieceOnGpu}, type, each));
    sent.push_back(piece_between(rank, each, type).to(gpu));
    received.push_back(piece_between(each, rank, type));
  }
  const auto empty = [&] {
    Tensors tensors;
    for (int each = 0; each < size; ++each) tensors.push_back(torch::zeros_like(own));
    return tensors;
  };
  const auto require_all = [&](const Tensors& got, const Tensors& expected, const char* call) {
    require_equal(torch::stack(got).cpu(), torch::stack(expected), call + what);
  };

  torch::Tensor tensor = own.clone();
  group.broadcast(tensor, root);
  require_equal(tensor.cpu(), of_all[static_cast<std::size_t>(root)], "broadcast" + what);

  Tensors outputs = empty();
  group.all_gather(outputs, own);
  require_all(outputs, of_all, "all_gather");
  tensor = torch::zeros({size, kPieceOnGpu}, own.options());
  tensor[rank].copy_(own);
  group.all_gather_into_tensor(tensor, tensor[rank]);
  require_equal(tensor.cpu(), torch::stack(of_all), "all_gather_into_tensor" + what);

  outputs = rank == root ? empty() : Tensors();
  group.gather(own, outputs, root);
  if (rank == root) require_all(outputs, of_all, "gather");
  tensor = torch::zeros_like(own);
  group.scatter(tensor, rank == root ? sent : Tensors(), root);
  require_equal(tensor.cpu(), piece_between(root, rank, type), "scatter" + what);

  outputs = empty();
  group.all_to_all(outputs, sent);
  require_all(outputs, received, "all_to_all");

  // Rank s sends (s + 2 r) % 4 elements to rank r; some send nothing, some send to themselves.
  std::vector<std::int64_t> input_splits, output_splits;
  Tensors inputs, expected;
  for (int each = 0; each < size; ++each) {
    input_splits.push_back((rank + 2 * each) % 4);
    output_splits.push_back((each + 2 * rank) % 4);
    inputs.push_back(sent[static_cast<std::size_t>(each)].narrow(0, 0, input_splits.back()));
    expected.push_back(received[static_cast<std::size_t>(each)].narrow(0, 0, output_splits.back()));
  }
  const torch::Tensor all_expected = torch::cat(expected);
  tensor = torch::zeros({all_expected.numel()}, own.options());
  group.all_to_all_single(tensor, torch::cat(inputs), output_splits, input_splits);
  require_equal(tensor.cpu(), all_expected, "all_to_all_single" + what);
}

void check_gpu_moves_of_types(ProcessGroup group, torch::Device gpu) {
  std::vector<torch::ScalarType> types = {torch::kFloat32, torch::kBool};
  if (group.size() <= kManyGpuRanks) {
    for (const auto type :
         {torch::kBFloat16, torch::kInt64, torch::kUInt8, torch::kInt16, torch::kComplexFloat}) {
      types.push_back(type);
    }
  }
  for (const auto type : types) check_gpu_moves(group, gpu, type);
}

void check_gpu_lists_and_objects(ProcessGroup group, torch::Device gpu) {
  using Texts = std::vector<std::string>;
  const int rank = group.rank(), size = group.size(), last = size - 1;
  const auto tensors_of = [&](int of_rank) {
    return Tensors{values({3, 2}, torch::kFloat32, of_rank), values({5}, torch::kInt64, of_rank),
                   values({}, torch::kFloat32, of_rank), values({7}, torch::kBFloat16, of_rank)};
  };
  const auto on_gpu = [&](Tensors tensors) {
    for (torch::Tensor& each : tensors) each = each.to(gpu);
    return tensors;
  };
  Tensors tensors = on_gpu(tensors_of(rank));
  group.all_reduce_coalesced(tensors);
  for (const torch::Tensor& each : tensors) {
    require_equal(each.cpu(),
                  reduced_values(each.sizes(), each.scalar_type(), size, ReduceOp::kSum),
                  "all_reduce_coalesced");
  }
  tensors = on_gpu(tensors_of(rank));
  group.broadcast_coalesced(tensors, last);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_equal(tensors[i].cpu(), tensors_of(last)[i], "broadcast_coalesced");
  }
  Texts names;
  for (int each = 0; each < size; ++each) names.push_back(str("rank ", each));
  const std::string& own = names[static_cast<std::size_t>(rank)];
  LOCKSTEP_CHECK(group.all_gather_object(own) == names, "all_gather_object");
  LOCKSTEP_CHECK(group.gather_object(own, last) == (rank == last ? names : Texts()), "gather");
  LOCKSTEP_CHECK(group.broadcast_object(own, last) == names.back(), "broadcast_object");
  LOCKSTEP_CHECK(group.scatter_object(rank == last ? names : Texts(), last) == own, "scatter");
  group.barrier();
  group.monitored_barrier();
  LOCKSTEP_CHECK(
      testing_support::message_of<ConfigError>([&] {
        group.broadcast(torch::ones({2}, gpu), size);
      }) == str("rank ", rank, ": broadcast: root must be from 0 to ", last, ", got ", size),
      "a wrong root");
}

// In pairs, around a ring, and in batches between all ranks.
void check_gpu_messages(ProcessGroup group, torch::Device gpu) {
  if (group.size() == 1) return;
  using Kind = P2POp::Kind;
  const int rank = group.rank(), size = group.size();
  const auto note = [&](int from, int to) { return torch::full({300}, 100 * from + to, gpu); };
  const auto require_note = [&](const torch::Tensor& got, int from, const char* what) {
    LOCKSTEP_CHECK(got.eq(100 * from + rank).all().item<bool>(), what, " from rank ", from);
  };

  // Two messages in each direction between neighbours, whose kernels wait for each other.
  const int partner = rank ^ 1;
  const bool sends_first = rank < partner;
  for (const bool sends : {sends_first, !sends_first}) {
    for (int message = 0; message < 2; ++message) {
      const torch::Tensor got = torch::zeros({300}, note(0, 0).options());
      if (sends) {
        group.send(note(rank, partner) + message, partner);
      } else if (message == 0) {
        LOCKSTEP_CHECK(group.recv(got, partner) == partner, "the source of a message");
        require_note(got, partner, "recv");
      } else {
        group.irecv(got, partner)->wait();
        require_note(got - message, partner, "irecv");
      }
    }
  }

  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const torch::Tensor from_left = torch::zeros_like(note(0, 0));
  for (const WorkPtr& work : group.batch_isend_irecv(
           {{Kind::kSend, note(rank, right), right}, {Kind::kRecv, from_left, left}})) {
    work->wait();
  }
  require_note(from_left, left, "a message around the ring");

  std::vector<P2POp> batch;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    batch.push_back({Kind::kRecv, torch::zeros_like(from_left), peer});
    batch.push_back({Kind::kSend, note(rank, peer), peer});
  }
  for (const WorkPtr& work : group.batch_isend_irecv(batch)) work->wait();
  for (const P2POp& each : batch) {
    if (each.kind == Kind::kRecv) require_note(each.tensor, each.peer, "a batch's message");
  }
}

TEST_P(NcclCollectives, AndMessagesMoveTensorsOfEveryTypeAndShape) {
  expect_success({{"moves", check_gpu_moves_of_types},
                  {"shapes", check_gpu_shapes},
                  {"lists and objects", check_gpu_lists_and_objects},
                  {"messages", check_gpu_messages}});
}

}  // namespace
}  // namespace lockstep
