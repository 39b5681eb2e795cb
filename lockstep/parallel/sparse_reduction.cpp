#include <lockstep/parallel/sparse_reduction.h>

#include <algorithm>

namespace lockstep {
namespace {

// `tensor`, [..., n, ...], with `n` grown to `size` by zeros.
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

// What travels, and where it arrives.
struct Exchange {
  torch::Tensor own;  // coalesced
  torch::Tensor counts;
  Tensors indices, values;
};

WorkPtr start_exchange(Exchange& exchange, ProcessGroup& group) {
  const std::int64_t most = std::max<std::int64_t>(exchange.counts.max().item<std::int64_t>(), 1);
  const torch::Tensor indices = padded(exchange.own.indices(), 1, most);
  const torch::Tensor values = padded(exchange.own.values(), 0, most);
  exchange.indices = like(indices, group.size());
  exchange.values = like(values, group.size());
  // Two collectives, one handle for both: operations of a group end in the order of their start.
  const WorkPtr first = group.async_all_gather(exchange.indices, indices);
  const WorkPtr second = group.async_all_gather(exchange.values, values);
  return std::make_shared<PhasedWork>(first, std::vector<PhasedWork::Phase>{[second] { return second; }});
}

torch::Tensor mean_of(const Exchange& exchange) {
  Tensors indices, values;
  const torch::Tensor counts = exchange.counts.cpu();
  for (std::size_t rank = 0; rank < exchange.indices.size(); ++rank) {
    const auto count = counts[static_cast<std::int64_t>(rank)].item<std::int64_t>();
    indices.push_back(exchange.indices[rank].narrow(1, 0, count));
    values.push_back(exchange.values[rank].narrow(0, 0, count));
  }
  const torch::Tensor sum =
      torch::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), exchange.own.sizes(),
                               exchange.own.options())
          .coalesce();
  return sum.div(static_cast<double>(exchange.indices.size())).coalesce();
}

}  // namespace

std::shared_ptr<PhasedWork> async_mean_sparse(const torch::Tensor& gradient, ProcessGroup group,
                                              std::shared_ptr<torch::Tensor> result) {
  const torch::NoGradGuard no_grad;
  auto exchange = std::make_shared<Exchange>();
  exchange->own = gradient.coalesce();
  exchange->counts = torch::empty({group.size()}, exchange->own.indices().options());
  const torch::Tensor count = torch::full({1}, exchange->own._nnz(), exchange->counts.options());
  const WorkPtr counted = group.async_all_gather_into_tensor(exchange->counts, count);
  return std::make_shared<PhasedWork>(
      counted, std::vector<PhasedWork::Phase>{
                   [exchange, group]() mutable -> WorkPtr {
                     const torch::NoGradGuard no_grad;
                     return start_exchange(*exchange, group);
                   },
                   [exchange, result]() -> WorkPtr {
                     const torch::NoGradGuard no_grad;
                     *result = mean_of(*exchange);
                     return nullptr;
                   }});
}

}  // namespace lockstep
