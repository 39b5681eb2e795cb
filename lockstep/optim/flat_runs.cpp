#include <lockstep/optim/flat_runs.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 64;

bool is_dense(const torch::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == torch::kStrided;
}

const std::byte* begin_of(const torch::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

const std::byte* end_of(const torch::Tensor& tensor) { return begin_of(tensor) + tensor.nbytes(); }

// Bytes from the end of `tensor` to the next multiple of 64.
std::int64_t padding_after(const torch::Tensor& tensor) {
  const auto end = reinterpret_cast<std::uintptr_t>(end_of(tensor));
  return static_cast<std::int64_t>((kAlignment - end % kAlignment) % kAlignment);
}

// The `bytes` after `tensor` are zeros of its storage.
bool zeros_follow(const torch::Tensor& tensor, std::int64_t bytes) {
  if (bytes == 0) return true;
  const auto size = static_cast<std::int64_t>(tensor.element_size());
  const std::int64_t end = tensor.storage_offset() + tensor.numel();
  if (bytes % size != 0 ||
      end * size + bytes > static_cast<std::int64_t>(tensor.storage().nbytes())) {
    return false;
  }
  return !tensor.detach().as_strided({bytes / size}, {1}, end).any().item<bool>();
}

// `next` follows `last`, at once or after the padding that a flat bucket has.
bool adjacent(const torch::Tensor& last, const torch::Tensor& next) {
  if (!last.storage().is_alias_of(next.storage())) return false;
  const std::ptrdiff_t gap = begin_of(next) - end_of(last);
  return gap == 0 || (gap == padding_after(last) && zeros_follow(last, gap));
}

torch::Tensor flat_view(const torch::Tensor& first, std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(first.element_size());
  return first.detach().as_strided({bytes / size}, {1}, first.storage_offset());
}

bool continues(const torch::Tensor& last, const torch::Tensor& next) {
  const torch::Tensor& last_gradient = last.grad();
  const torch::Tensor& next_gradient = next.grad();
  return last.scalar_type() == next.scalar_type() &&
         begin_of(next) - begin_of(last) == begin_of(next_gradient) - begin_of(last_gradient) &&
         adjacent(last, next) && adjacent(last_gradient, next_gradient);
}

}  // namespace

Addresses addresses_of(const Tensors& parameters) {
  Addresses addresses;
  addresses.reserve(2 * parameters.size());
  for (const auto& parameter : parameters) {
    const torch::Tensor& gradient = parameter.grad();
    addresses.push_back(parameter.const_data_ptr());
    addresses.push_back(is_dense(gradient) ? gradient.const_data_ptr() : nullptr);
  }
  return addresses;
}

FlatRuns::FlatRuns(const Tensors& parameters) : addresses_(addresses_of(parameters)) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) continue;
    if (is_dense(gradient) && gradient.strides() == parameters[i].strides() &&
        gradient.scalar_type() == parameters[i].scalar_type()) {
      order.push_back(i);
    } else {
      complete_ = false;
    }
  }
  members_ = order.size();
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::less<>()(begin_of(parameters[a]), begin_of(parameters[b]));
  });
  for (const std::size_t i : order) {
    if (runs_.empty() || !continues(parameters[runs_.back().back()], parameters[i])) {
      runs_.emplace_back();
    }
    runs_.back().push_back(i);
  }
  for (const auto& run : runs_) {
    const torch::Tensor& first = parameters[run.front()];
    const torch::Tensor& last = parameters[run.back()];
    std::int64_t bytes = end_of(last) - begin_of(first);
    // Whole vectors to the end spare the kernels' callers the rest.
    const std::int64_t padding = padding_after(last);
    if (padding == padding_after(last.grad()) && zeros_follow(last, padding) &&
        zeros_follow(last.grad(), padding)) {
      bytes += padding;
    }
    parameters_.push_back(flat_view(first, bytes));
    gradients_.push_back(flat_view(first.grad(), bytes));
  }
}

bool FlatRuns::fit(const Tensors& parameters) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    if (parameters[i].const_data_ptr() != addresses_[2 * i]) return false;
    if (addresses_[2 * i + 1] == nullptr) {
      if (gradient.defined()) return false;
    } else if (!is_dense(gradient) || gradient.const_data_ptr() != addresses_[2 * i + 1] ||
               gradient.strides() != parameters[i].strides()) {
      return false;
    }
  }
  return true;
}

torch::Tensor FlatRuns::part(const torch::Tensor& flat, const torch::Tensor& run,
                             const torch::Tensor& parameter) {
  return flat.as_strided(parameter.sizes(), parameter.strides(),
                         flat.storage_offset() + parameter.storage_offset() - run.storage_offset());
}

}  // namespace lockstep
