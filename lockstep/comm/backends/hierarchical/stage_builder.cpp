#include <lockstep/comm/backends/hierarchical/stage_builder.h>

#include <algorithm>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/core/error.h>

namespace lockstep::hierarchical {
namespace {

using torch::Tensor;

// The size of a piece. While one piece is on the network, the next one is combined inside the host.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

bool is_half(const Tensor& tensor) {
  return tensor.scalar_type() == torch::kFloat16 || tensor.scalar_type() == torch::kBFloat16;
}

Tensor wide(const Tensor& tensor) {
  return is_half(tensor) ? tensor.detach().to(torch::kFloat32) : tensor.detach();
}

Tensor scratch(std::int64_t count, const Tensor& like) {
  return torch::empty({count}, torch::TensorOptions().dtype(like.dtype()).device(like.device()));
}

// An average is computed as a sum, which is divided at the end. The factor of a pre-multiplied sum
// is applied by the first reduction only.
ReduceOp first_op(ReduceOp op) { return op.kind == ReduceOp::Kind::kAverage ? ReduceOp::kSum : op; }
ReduceOp next_op(ReduceOp op) {
  const bool sum =
      op.kind == ReduceOp::Kind::kAverage || op.kind == ReduceOp::Kind::kPreMultipliedSum;
  return sum ? ReduceOp::kSum : op;
}

void divide_if_average(Tensor tensor, ReduceOp op, int size) {
  const torch::NoGradGuard no_grad;
  if (op.kind == ReduceOp::Kind::kAverage) tensor.div_(size);
}

void store(Tensor destination, const Tensor& source) {
  const torch::NoGradGuard no_grad;
  if (!destination.is_same(source)) destination.detach().copy_(source);
}

// Whether `input` lies inside `output`. Such an input has a different offset on each rank, but the
// ranks of a host would expect symmetric memory at the same offset.
bool lies_in(const Tensor& output, const Tensor& input) {
  const auto* begin = static_cast<const std::byte*>(output.const_data_ptr());
  const auto* data = static_cast<const std::byte*>(input.const_data_ptr());
  return data >= begin && data < begin + output.nbytes();
}

std::vector<Tensor> cut(const Tensor& tensor) {
  const std::int64_t count =
      std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(tensor.element_size()));
  return tensor.split(count);
}

}  // namespace

WorkPtr Level::start(CallKind kind, std::int64_t count, Tensor input, Tensor output, ReduceOp op,
                     int root) {
  comm::Collective call;
  const Tensor& any = output.defined() ? output : input;
  call.description.kind = kind;
  call.description.op = op;
  call.description.root = root;
  if (any.defined()) {
    count *= comm::units_per_element(any.scalar_type());
    call.description.type = comm::data_type_of(any.scalar_type());
    call.description.count = static_cast<std::uint64_t>(count);
    call.description.shape = shape_;
  }
  call.input = std::move(input);
  call.output = std::move(output);
  call.number = number_++;
  return backend_->start(call);
}

StageBuilder::StageBuilder(const Parts& parts)
    : locations_(parts.locations),
      me_(parts.locations[static_cast<std::size_t>(parts.rank)]),
      local_(parts.local),
      leaders_(parts.leaders) {
  for (const RankLocation& location : locations_) {
    const auto host = static_cast<std::size_t>(location.host);
    if (local_sizes_.size() <= host) local_sizes_.resize(host + 1);
    ++local_sizes_[host];
  }
  most_local_ = *std::max_element(local_sizes_.begin(), local_sizes_.end());
}

bool StageBuilder::has_stages(const comm::Collective& call) {
  const CallKind kind = call.description.kind;
  return kind != CallKind::kGather && kind != CallKind::kScatter && kind != CallKind::kAllToAll;
}

std::shared_ptr<StagedCollective> StageBuilder::build(const comm::Collective& call) {
  const torch::NoGradGuard no_grad;
  auto collective = std::make_shared<StagedCollective>();
  collective->description = call.description;
  collective->number = call.number;
  // A rank without data still takes part in a barrier, because its peers may have data.
  if (call.description.count == 0) {
    barrier(*collective);
    return collective;
  }
  switch (call.description.kind) {
    case CallKind::kBarrier:
      barrier(*collective);
      break;
    case CallKind::kBroadcast:
      broadcast(*collective, call);
      break;
    case CallKind::kReduce:
      reduce(*collective, call);
      break;
    case CallKind::kAllReduce:
      all_reduce(*collective, call);
      break;
    case CallKind::kAllGather:
      all_gather(*collective, call);
      break;
    case CallKind::kReduceScatter:
      reduce_scatter(*collective, call);
      break;
    default:
      throw InternalError(str(call_name(call.description.kind), " has no stages"));
  }
  name_shape(*collective, call.description.shape);
  return collective;
}

void StageBuilder::name_shape(StagedCollective& collective, const Shape& shape) {
  for (Piece& piece : collective.pieces) {
    for (auto* stage : {&piece.up, &piece.across, &piece.down}) {
      if (!*stage) continue;
      *stage = [this, shape, start = std::move(*stage)] {
        local_.begin(shape);
        leaders_.begin(shape);
        return start();
      };
    }
  }
}

void StageBuilder::barrier(StagedCollective& collective) {
  Piece piece;
  piece.up = piece.down = [this] { return local_.start(CallKind::kBarrier, 0, {}, {}); };
  if (leaders_) piece.across = [this] { return leaders_.start(CallKind::kBarrier, 0, {}, {}); };
  collective.pieces.push_back(std::move(piece));
}

// On its own host the root broadcasts to all ranks, including the leader. On the other hosts the
// leader broadcasts.
void StageBuilder::broadcast(StagedCollective& collective, const comm::Collective& call) {
  const RankLocation root = location(call.description.root);
  for (const Tensor& part : cut(call.output.detach())) {
    const auto tell = [this, part](int from) {
      return local_.start(CallKind::kBroadcast, part.numel(), {}, part, ReduceOp::kSum, from);
    };
    Piece piece;
    if (me_.host == root.host) {
      piece.up = [tell, from = root.local_rank] { return tell(from); };
    } else {
      piece.down = [tell] { return tell(0); };
    }
    if (leaders_) {
      piece.across = [this, part, from = root.host] {
        return leaders_.start(CallKind::kBroadcast, part.numel(), {}, part, ReduceOp::kSum, from);
      };
    }
    collective.pieces.push_back(std::move(piece));
  }
}

void StageBuilder::all_reduce(StagedCollective& collective, const comm::Collective& call) {
  const Tensor output = call.output.detach();
  const Tensor values = wide(output);
  const ReduceOp op = call.description.op;
  for (const Tensor& part : cut(values)) {
    Piece piece;
    piece.up = [this, part, op] {
      return local_.start(CallKind::kReduce, part.numel(), part, is_leader() ? part : Tensor(),
                          first_op(op), 0);
    };
    if (leaders_) {
      piece.across = [this, part, op] {
        return leaders_.start(CallKind::kAllReduce, part.numel(), {}, part, next_op(op));
      };
    }
    piece.down = [this, part, op] {
      if (is_leader()) divide_if_average(part, op, size());
      return local_.start(CallKind::kBroadcast, part.numel(), {}, part, ReduceOp::kSum, 0);
    };
    collective.pieces.push_back(std::move(piece));
  }
  collective.finish = [output, values] { store(output, values); };
}

// The leader of the root's host broadcasts the sum inside the host; only the root keeps it.
void StageBuilder::reduce(StagedCollective& collective, const comm::Collective& call) {
  const RankLocation root = location(call.description.root);
  const bool on_roots_host = me_.host == root.host;
  const Tensor values = wide(call.input);
  const ReduceOp op = call.description.op;
  const bool told = on_roots_host && root.local_rank != 0;
  const Tensor sum = is_leader() || told ? scratch(values.numel(), values) : Tensor();
  Piece piece;
  piece.up = [this, values, sum, op] {
    return local_.start(CallKind::kReduce, values.numel(), values, is_leader() ? sum : Tensor(),
                        first_op(op), 0);
  };
  if (leaders_) {
    piece.across = [this, sum, op, on_roots_host, to = root.host] {
      return leaders_.start(CallKind::kReduce, sum.numel(), sum, on_roots_host ? sum : Tensor(),
                            next_op(op), to);
    };
  }
  if (told) {
    piece.down = [this, sum] {
      return local_.start(CallKind::kBroadcast, sum.numel(), {}, sum, ReduceOp::kSum, 0);
    };
  }
  collective.pieces.push_back(std::move(piece));
  if (call.output.defined()) {
    collective.finish = [this, sum, op, output = call.output] {
      divide_if_average(sum, op, size());
      store(output, sum);
    };
  }
}

// Hosts with fewer ranks than the largest host send padding rows, which are ignored.
void StageBuilder::all_gather(StagedCollective& collective, const comm::Collective& call) {
  const Tensor input =
      lies_in(call.output, call.input) ? call.input.detach().clone() : call.input.detach();
  const Tensor output = call.output.detach();
  const std::int64_t count = input.numel();
  const auto hosts = static_cast<std::int64_t>(local_sizes_.size());
  const Tensor rows = is_leader() ? scratch(most_local_ * count, output) : Tensor();
  const Tensor all = leaders_ ? scratch(hosts * most_local_ * count, output) : rows;
  Piece piece;
  piece.up = [this, input, rows, count] {
    return local_.start(CallKind::kGather, count, input,
                        is_leader() ? rows.slice(0, 0, local_size() * count) : Tensor(),
                        ReduceOp::kSum, 0);
  };
  if (leaders_) {
    piece.across = [this, rows, all] {
      return leaders_.start(CallKind::kAllGather, rows.numel(), rows, all);
    };
  }
  piece.down = [this, all, output, count] {
    if (is_leader()) store(output, by_rank(all, count));
    return local_.start(CallKind::kBroadcast, output.numel(), {}, output, ReduceOp::kSum, 0);
  };
  collective.pieces.push_back(std::move(piece));
}

void StageBuilder::reduce_scatter(StagedCollective& collective, const comm::Collective& call) {
  const Tensor output = call.output.detach();
  Tensor values = wide(call.input);
  // The leader reduces into a separate buffer, so its peers must not offer symmetric memory to be
  // reduced in place.
  if (!is_leader() && local_.shares(values)) values = values.clone();
  const std::int64_t count = output.numel();
  const ReduceOp op = call.description.op;
  const Tensor total = is_leader() ? scratch(values.numel(), values) : Tensor();
  const Tensor mine = is_leader() ? scratch(most_local_ * count, values) : Tensor();
  const Tensor share = is_half(output) ? scratch(count, values) : output;
  Piece piece;
  piece.up = [this, values, total, op] {
    return local_.start(CallKind::kReduce, values.numel(), values, is_leader() ? total : Tensor(),
                        first_op(op), 0);
  };
  if (leaders_) {
    piece.across = [this, total, mine, op, count] {
      return leaders_.start(CallKind::kReduceScatter, mine.numel(), by_location(total, count), mine,
                            next_op(op));
    };
  }
  piece.down = [this, total, mine, share, op, count] {
    Tensor shares;
    if (is_leader()) {
      if (!leaders_) store(mine, by_location(total, count));
      divide_if_average(mine, op, size());
      shares = mine.slice(0, 0, local_size() * count);
    }
    return local_.start(CallKind::kScatter, count, shares, share, ReduceOp::kSum, 0);
  };
  collective.pieces.push_back(std::move(piece));
  collective.finish = [output, share] { store(output, share); };
}

// Reorders from [host][local rank][count], padded, to [rank][count].
Tensor StageBuilder::by_rank(const Tensor& by_location, std::int64_t count) const {
  const torch::NoGradGuard no_grad;
  const Tensor rows = by_location.view({-1, count});
  std::vector<Tensor> ordered;
  for (const RankLocation& location : locations_)
    ordered.push_back(rows[location.host * most_local_ + location.local_rank]);
  return torch::cat(ordered);
}

Tensor StageBuilder::by_location(const Tensor& by_rank, std::int64_t count) const {
  const torch::NoGradGuard no_grad;
  const auto hosts = static_cast<std::int64_t>(local_sizes_.size());
  Tensor result = torch::zeros({hosts * most_local_, count}, by_rank.options());
  const Tensor rows = by_rank.view({-1, count});
  for (int rank = 0; rank < size(); ++rank) {
    result[location(rank).host * most_local_ + location(rank).local_rank].copy_(rows[rank]);
  }
  return result.flatten();
}

}  // namespace lockstep::hierarchical
