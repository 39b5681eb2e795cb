#include "sparse.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lockstep/comm/group/group_work.h>
#include <lockstep/core/strings.h>

#include "finished_work.h"

namespace lockstep_c10d {
namespace {

// Returns the numbers of elements of all ranks. Checks that all tensors have the same shape and
// type.
std::vector<std::int64_t> exchange_counts(lockstep::ProcessGroup& group, const at::Tensor& tensor,
                                          std::chrono::milliseconds timeout) {
  std::vector<std::int64_t> facts = {tensor._nnz(), tensor.sparse_dim(),
                                     static_cast<std::int64_t>(tensor.scalar_type())};
  facts.insert(facts.end(), tensor.sizes().begin(), tensor.sizes().end());
  const at::Tensor mine = at::tensor(facts, at::kLong);
  const at::Tensor all = at::empty({group.size(), mine.numel()}, at::kLong);
  group.async_all_gather_into_tensor(all, mine)->wait(timeout);
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (!all[rank].slice(0, 1).equal(mine.slice(0, 1))) {
      C10_THROW_ERROR(
          ValueError,
          lockstep::str("rank ", group.rank(), ": all_reduce: the sparse tensor has shape ",
                        tensor.sizes(), " with ", tensor.sparse_dim(),
                        " sparse dimensions and type ", tensor.scalar_type(), ", that of rank ",
                        rank, " has others; expected one shape and type on all ranks"));
    }
    counts.push_back(all[rank][0].item<std::int64_t>());
  }
  return counts;
}

// Gathers the `rows` of all ranks, each padded to `most` rows.
std::pair<at::Tensor, lockstep::WorkPtr> gather_rows(lockstep::ProcessGroup& group,
                                                     const at::Tensor& rows, std::int64_t most) {
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = most;
  const at::Tensor mine = at::zeros(shape, rows.options());
  mine.narrow(0, 0, rows.size(0)).copy_(rows);
  shape.insert(shape.begin(), group.size());
  const at::Tensor all = at::empty(shape, rows.options());
  return {all, group.async_all_gather_into_tensor(all, mine)};
}

// Concatenates the rows of all ranks without the padding, in rank order.
at::Tensor joined(const at::Tensor& all, const std::vector<std::int64_t>& counts) {
  Tensors pieces;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    pieces.push_back(all[static_cast<std::int64_t>(rank)].narrow(0, 0, counts[rank]));
  }
  return at::cat(pieces);
}

}  // namespace

bool is_sparse(const Tensors& tensors) {
  return !tensors.empty() && tensors[0].defined() && tensors[0].layout() == at::kSparse;
}

lockstep::WorkPtr all_reduce_sparse(lockstep::ProcessGroup& group, const Tensors& tensors,
                                    lockstep::ReduceOp op, std::chrono::milliseconds timeout) {
  if (op != lockstep::ReduceOp::kSum) {
    C10_THROW_ERROR(ValueError,
                    "unsupported reduction operation (allreduce of sparse tensors only "
                    "works with ReduceOp.SUM)");
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() == at::kSparse && tensor.sizes() == tensors[0].sizes() &&
        tensor.scalar_type() == tensors[0].scalar_type()) {
      continue;
    }
    C10_THROW_ERROR(ValueError, "all_reduce: expected sparse tensors of one shape and type");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor mine = reduced_here(tensors, op).coalesce();
  const std::vector<std::int64_t> counts = exchange_counts(group, mine, timeout);
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  auto [indices, indices_work] = gather_rows(group, mine.indices().t(), most);
  auto [values, values_work] = gather_rows(group, mine.values(), most);
  return std::make_shared<FinishedWork>(
      std::make_shared<lockstep::comm::WorkList>(
          std::vector<lockstep::WorkPtr>{std::move(indices_work), std::move(values_work)}),
      [tensors, counts, indices = std::move(indices), values = std::move(values),
       shape = mine.sizes().vec()] {
        const at::Tensor sum =
            at::sparse_coo_tensor(joined(indices, counts).t(), joined(values, counts), shape)
                .coalesce();
        for (const at::Tensor& tensor : tensors) tensor.copy_(sum);
      });
}

}  // namespace lockstep_c10d
