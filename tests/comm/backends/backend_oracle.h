// Tests of backends without ProcessGroup: every collective and every type, compared with plain
// arithmetic.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/error.h>

namespace lockstep::testing_support {

/// Starts collectives of a backend, with the numbers that ProcessGroup would assign.
class Caller {
 public:
  /// check_reductions() and check_moves() communicate tensors of `device`.
  Caller(std::shared_ptr<comm::Backend> backend, int rank, int size,
         torch::Device device = torch::kCPU)
      : backend(std::move(backend)), rank(rank), size(size), device(device) {}

  std::shared_ptr<Work> start(CallKind kind, torch::Tensor input, torch::Tensor output,
                              ReduceOp op = ReduceOp::kSum, int root = -1) {
    comm::Collective call;
    const torch::Tensor& any = output.defined() ? output : input;
    call.description.kind = kind;
    call.description.op = op;
    call.description.root = root;
    if (any.defined()) {
      const bool input_is_piece =
          kind == CallKind::kGather || kind == CallKind::kAllGather || kind == CallKind::kReduce;
      const auto piece = kind == CallKind::kAllToAll ? any.numel() / size
                         : input_is_piece            ? input.numel()
                                                     : output.numel();
      call.description.type = comm::data_type_of(any.scalar_type());
      call.description.count = static_cast<std::uint64_t>(piece);
      call.description.shape = {1, {static_cast<std::uint32_t>(piece)}};
    }
    call.input = std::move(input);
    call.output = std::move(output);
    return start(std::move(call));
  }
  std::shared_ptr<Work> start(comm::Collective call) {
    call.number = number++;
    return backend->start(call);
  }
  void all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum) {
    start(CallKind::kAllReduce, {}, std::move(tensor), op)->wait();
  }
  void barrier() { start(CallKind::kBarrier, {}, {})->wait(); }

  /// The tensor itself if it is on `device`, else a copy there.
  torch::Tensor on_device(const torch::Tensor& tensor) const { return tensor.to(device); }
  torch::Tensor empty(std::int64_t count, torch::ScalarType type) const {
    return torch::empty({count}, torch::TensorOptions().dtype(type).device(device));
  }

  const std::shared_ptr<comm::Backend> backend;
  const int rank;
  const int size;
  const torch::Device device;
  std::uint64_t number = 0;
};

/// The input of rank `rank`: small integers, so that every result is exact in every type.
inline torch::Tensor values_of(int rank, std::int64_t count, torch::ScalarType type) {
  return (torch::arange(count) + rank).remainder(type == torch::kBool ? 2 : 3).to(type);
}

/// The reduction of the ranks' values, in rank order and in double or int64.
inline torch::Tensor reduced(int size, std::int64_t count, torch::ScalarType type, ReduceOp op) {
  using Kind = ReduceOp::Kind;
  const auto wide = [&](int rank) {
    const auto values = values_of(rank, count, type);
    const auto result =
        c10::isFloatingType(type) ? values.to(torch::kFloat64) : values.to(torch::kInt64);
    return op.kind == Kind::kPreMultipliedSum ? result * op.factor : result;
  };
  torch::Tensor sum = wide(0);
  for (int rank = 1; rank < size; ++rank) {
    const torch::Tensor next = wide(rank);
    switch (op.kind) {
      case Kind::kSum:
      case Kind::kAverage:
      case Kind::kPreMultipliedSum:
        sum = sum + next;
        break;
      case Kind::kProduct:
        sum = sum * next;
        break;
      case Kind::kMin:
        sum = torch::minimum(sum, next);
        break;
      case Kind::kMax:
        sum = torch::maximum(sum, next);
        break;
      case Kind::kBitwiseAnd:
        sum = torch::bitwise_and(sum, next);
        break;
      case Kind::kBitwiseOr:
        sum = torch::bitwise_or(sum, next);
        break;
      case Kind::kBitwiseXor:
        sum = torch::bitwise_xor(sum, next);
        break;
    }
  }
  return (op.kind == Kind::kAverage ? sum / size : sum).to(type);
}

/// Compares the values on the CPU, whichever devices hold the tensors.
inline void expect_equal(const torch::Tensor& got, const torch::Tensor& expected,
                         const std::string& what) {
  const auto values = [](const torch::Tensor& tensor) { return tensor.cpu().to(torch::kFloat64); };
  if (!torch::allclose(values(got), values(expected), 1e-2, 1e-6)) {
    throw Error(lockstep::str(what, ": got ", got.flatten().slice(0, 0, 8), ", expected ",
                              expected.flatten().slice(0, 0, 8)));
  }
}

inline const std::vector<torch::ScalarType>& reducible_types() {
  static const std::vector<torch::ScalarType> types = {
      torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
      torch::kInt16,   torch::kInt32,   torch::kInt64,   torch::kUInt8,    torch::kBool};
  return types;
}

inline const std::vector<ReduceOp>& reduce_ops() {
  static const std::vector<ReduceOp> ops = {
      ReduceOp::kSum,       ReduceOp::kAverage,    ReduceOp::kProduct,
      ReduceOp::kMin,       ReduceOp::kMax,        ReduceOp::kBitwiseAnd,
      ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor, ReduceOp::premultiplied_sum(0.5)};
  return ops;
}

/// Checks all reductions of `count` elements, for every type.
inline void check_reductions(Caller& caller, std::int64_t count) {
  const int rank = caller.rank;
  const int size = caller.size;
  for (const auto type : reducible_types()) {
    for (const ReduceOp& op : reduce_ops()) {
      if (!comm::why_not_reducible(comm::data_type_of(type), op).empty()) continue;
      const std::string what =
          lockstep::str(" of ", count, " ", comm::type_name(type), ", ", reduce_op_name(op.kind));
      auto tensor = caller.on_device(values_of(rank, count, type));
      caller.all_reduce(tensor, op);
      expect_equal(tensor, reduced(size, count, type, op), "all_reduce" + what);

      for (int root = 0; root < size; ++root) {
        const auto input = caller.on_device(values_of(rank, count, type));
        auto output =
            rank == root ? (root % 2 == 0 ? input : torch::empty_like(input)) : torch::Tensor();
        caller.start(CallKind::kReduce, input, output, op, root)->wait();
        if (rank == root) {
          expect_equal(output, reduced(size, count, type, op), "reduce" + what);
        } else {
          expect_equal(input, values_of(rank, count, type), "input of reduce" + what);
        }
      }

      const auto values = caller.on_device(values_of(rank, count * size, type));
      auto piece = caller.empty(count, type);
      caller.start(CallKind::kReduceScatter, values, piece, op)->wait();
      expect_equal(piece,
                   reduced(size, count * size, type, op).slice(0, rank * count, (rank + 1) * count),
                   "reduce_scatter" + what);
    }
  }
}

/// Checks all collectives that only move data.
inline void check_moves(Caller& caller, std::int64_t count, torch::ScalarType type) {
  const int rank = caller.rank;
  const int size = caller.size;
  const std::string what = lockstep::str(" of ", count, " ", comm::type_name(type));
  std::vector<torch::Tensor> all;
  for (int each = 0; each < size; ++each) all.push_back(values_of(each, count, type) * (each + 1));
  const auto together = torch::cat(all);
  const auto mine = caller.on_device(all[static_cast<std::size_t>(rank)]);

  auto gathered = caller.empty(count * size, type);
  caller.start(CallKind::kAllGather, mine, gathered)->wait();
  expect_equal(gathered, together, "all_gather" + what);

  auto in_place = caller.on_device(torch::zeros({count * size}, type));
  in_place.slice(0, rank * count, (rank + 1) * count).copy_(mine);
  caller.start(CallKind::kAllGather, in_place.slice(0, rank * count, (rank + 1) * count), in_place)
      ->wait();
  expect_equal(in_place, together, "all_gather in place" + what);

  for (int root = 0; root < size; ++root) {
    auto tensor = mine.clone();
    caller.start(CallKind::kBroadcast, {}, tensor, ReduceOp::kSum, root)->wait();
    expect_equal(tensor, all[static_cast<std::size_t>(root)], "broadcast" + what);

    auto output = rank == root ? caller.empty(count * size, type) : torch::Tensor();
    caller.start(CallKind::kGather, mine, output, ReduceOp::kSum, root)->wait();
    if (rank == root) expect_equal(output, together, "gather" + what);

    const auto scattered = rank == root ? caller.on_device(together * (root + 1)) : torch::Tensor();
    auto piece = caller.empty(count, type);
    caller.start(CallKind::kScatter, scattered, piece, ReduceOp::kSum, root)->wait();
    expect_equal(piece, mine * (root + 1), "scatter" + what);
  }

  // Piece r of rank s is s's values times (r + 1).
  std::vector<torch::Tensor> sent, received;
  for (int each = 0; each < size; ++each) {
    sent.push_back(mine * (each + 1));
    received.push_back(all[static_cast<std::size_t>(each)] * (rank + 1));
  }
  auto exchanged = caller.empty(count * size, type);
  caller.start(CallKind::kAllToAll, torch::cat(sent), exchanged)->wait();
  expect_equal(exchanged, torch::cat(received), "all_to_all" + what);

  // Rank s sends (s + 2 r) % 4 elements to rank r; some send nothing, some send to themselves.
  comm::Collective uneven;
  uneven.description.kind = CallKind::kAllToAll;
  uneven.description.type = comm::data_type_of(type);
  const auto split = [](int from, int to) {
    return static_cast<std::int64_t>((from + 2 * to) % 4);
  };
  std::vector<torch::Tensor> expected;
  std::int64_t total_in = 0;
  std::int64_t total_out = 0;
  for (int each = 0; each < size; ++each) {
    uneven.input_splits.push_back(split(rank, each));
    uneven.output_splits.push_back(split(each, rank));
    total_in += split(rank, each);
    total_out += split(each, rank);
    expected.push_back(torch::full({split(each, rank)}, each + 1).to(type));
  }
  uneven.input = caller.on_device(torch::full({total_in}, rank + 1).to(type));
  uneven.output = caller.on_device(torch::zeros({total_out}, type));
  caller.start(uneven)->wait();
  expect_equal(uneven.output, torch::cat(expected), "uneven all_to_all" + what);
}

/// Checks messages of CPU tensors between all pairs, and from any source.
inline void check_messages(Caller& caller, std::int64_t count, bool any_source) {
  comm::Backend& backend = *caller.backend;
  const int rank = caller.rank;
  const int size = caller.size;
  std::vector<std::shared_ptr<Work>> works;
  std::vector<torch::Tensor> received;
  for (int peer = 0; peer < size; ++peer) {
    received.push_back(torch::empty({count}));
    if (peer == rank) continue;
    works.push_back(backend.recv(received.back(), peer, /*tag=*/rank));
    works.push_back(backend.send(torch::full({count}, rank * 100.0F + peer), peer, /*tag=*/peer));
  }
  while (!works.back()->is_completed()) std::this_thread::yield();
  for (auto& work : works) work->wait();
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      expect_equal(received[static_cast<std::size_t>(peer)],
                   torch::full({count}, peer * 100 + rank), "recv");
    }
  }
  if (any_source && rank == 0) {
    for (int i = 1; i < size; ++i) {
      auto tensor = torch::empty({count});
      auto work = backend.recv(tensor, std::nullopt, /*tag=*/7);
      work->wait();
      expect_equal(tensor, torch::full({count}, work->source_rank()), "recv from any rank");
    }
  } else if (any_source) {
    backend.send(torch::full({count}, static_cast<float>(rank)), 0, /*tag=*/7)->wait();
  }
}

}  // namespace lockstep::testing_support
