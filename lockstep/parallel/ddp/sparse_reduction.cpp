#include <lockstep/parallel/ddp/sparse_reduction.h>

#include <algorithm>

#include <lockstep/core/error.h>

namespace lockstep::parallel {
namespace {

// Returns `tensor`, [..., n, ...], with dimension n padded with zeros to `size`.
torch::Tensor padded(const torch::Tensor& tensor, std::int64_t dim, std::int64_t size) {
  auto shape = tensor.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = size;
  torch::Tensor wide = torch::zeros(shape, tensor.options());
  wide.narrow(dim, 0, tensor.size(dim)).copy_(tensor);
  return wide;
}

Tensors like(const torch::Tensor& tensor, int count) {
  Tensors tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(torch::empty_like(tensor));
  return tensors;
}

torch::Tensor empty_of(const torch::Tensor& like, std::int64_t sparse_dim) {
  return at::_sparse_coo_tensor_with_dims(sparse_dim, like.dim() - sparse_dim, like.sizes(),
                                          like.options().layout(torch::kSparse))
      ._coalesced_(true);
}

// The tensors that are sent and those that receive.
struct Exchange {
  torch::Tensor own;     // coalesced
  torch::Tensor counts;  // for each rank, its number of indices and of sparse dimensions
  Tensors indices, values;
};

// A rank without indices adopts the others' number of sparse dimensions.
void agree_on_dimensions(Exchange& exchange) {
  const torch::Tensor counts = exchange.counts.cpu();
  std::int64_t agreed = 0;
  for (std::int64_t rank = 0; rank < counts.size(0); ++rank) {
    const auto count = counts[rank][0].item<std::int64_t>(),
               dimensions = counts[rank][1].item<std::int64_t>();
    if (count == 0) continue;
    if (agreed != 0 && dimensions != agreed) {
      throw ConfigError(lockstep::str(
          "ranks have sparse gradients of different kinds for one parameter: ", agreed,
          " and, on rank ", rank, ", ", dimensions, " sparse dimensions"));
    }
    agreed = dimensions;
  }
  if (agreed == 0) agreed = counts.select(1, 1).min().item<std::int64_t>();
  if (exchange.own._nnz() == 0) exchange.own = empty_of(exchange.own, agreed);
}

WorkPtr start_exchange(Exchange& exchange, ProcessGroup& group) {
  agree_on_dimensions(exchange);
  const std::int64_t most =
      std::max<std::int64_t>(exchange.counts.select(1, 0).max().item<std::int64_t>(), 1);
  const torch::Tensor indices = padded(exchange.own.indices(), 1, most);
  const torch::Tensor values = padded(exchange.own.values(), 0, most);
  exchange.indices = like(indices, group.size());
  exchange.values = like(values, group.size());
  const WorkPtr first = group.async_all_gather(exchange.indices, indices);
  const WorkPtr second = group.async_all_gather(exchange.values, values);
  return std::make_shared<PhasedWork>(first,
                                      std::vector<PhasedWork::Phase>{[second] { return second; }});
}

torch::Tensor mean_of(const Exchange& exchange) {
  Tensors indices, values;
  const torch::Tensor counts = exchange.counts.cpu();
  for (std::size_t rank = 0; rank < exchange.indices.size(); ++rank) {
    const auto count = counts[static_cast<std::int64_t>(rank)][0].item<std::int64_t>();
    indices.push_back(exchange.indices[rank].narrow(1, 0, count));
    values.push_back(exchange.values[rank].narrow(0, 0, count));
  }
  const torch::Tensor sum = torch::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0),
                                                     exchange.own.sizes(), exchange.own.options())
                                .coalesce();
  return sum.div(static_cast<double>(exchange.indices.size())).coalesce();
}

}  // namespace

torch::Tensor empty_sparse(const torch::Tensor& parameter) { return empty_of(parameter, 1); }

std::shared_ptr<PhasedWork> async_mean_sparse(const torch::Tensor& gradient, ProcessGroup group,
                                              std::shared_ptr<torch::Tensor> result) {
  const torch::NoGradGuard no_grad;
  auto exchange = std::make_shared<Exchange>();
  exchange->own = gradient.coalesce();
  exchange->counts = torch::empty({group.size(), 2}, exchange->own.indices().options());
  const torch::Tensor count =
      torch::tensor({exchange->own._nnz(), exchange->own.sparse_dim()}, torch::kInt64)
          .to(exchange->counts.device());
  const WorkPtr counted = group.async_all_gather_into_tensor(exchange->counts, count);
  return std::make_shared<PhasedWork>(
      counted, std::vector<PhasedWork::Phase>{[exchange, group]() mutable -> WorkPtr {
                                                const torch::NoGradGuard no_grad;
                                                return start_exchange(*exchange, group);
                                              },
                                              [exchange, result]() -> WorkPtr {
                                                const torch::NoGradGuard no_grad;
                                                *result = mean_of(*exchange);
                                                return nullptr;
                                              }});
}

}  // namespace lockstep::parallel
