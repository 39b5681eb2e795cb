#include <lockstep/optim/flat_runs.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <lockstep/optim/tensor_kind.h>

namespace lockstep::detail {
namespace {

constexpr std::size_t kAlignment = 64;

// Whether the memory of the gradient holds its values.
bool is_dense(const torch::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == torch::kStrided && !gradient.is_conj() &&
         !gradient.is_neg();
}

// Null for a gradient that no run can hold. LibTorch has no address of an empty tensor.
const void* address_of(const torch::Tensor& gradient) {
  static constexpr char kNothing = 0;
  if (!is_dense(gradient)) return nullptr;
  return gradient.numel() == 0 ? &kNothing : gradient.const_data_ptr();
}

const std::byte* begin_of(const torch::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

const std::byte* end_of(const torch::Tensor& tensor) { return begin_of(tensor) + tensor.nbytes(); }

// The padding from the end of `tensor` to the next multiple of 64 bytes.
FlatRuns::Padding padding_after(const torch::Tensor& tensor) {
  const std::byte* end = end_of(tensor);
  std::uint64_t value_bits = ~std::uint64_t{0};
  const std::size_t element_bits = 8 * tensor.element_size();
  for (std::size_t sign = element_bits - 1; sign < 64; sign += element_bits) {
    value_bits &= ~(std::uint64_t{1} << sign);
  }
  return {end, (kAlignment - reinterpret_cast<std::uintptr_t>(end) % kAlignment) % kAlignment,
          value_bits};
}

bool may_take_along(const FlatRuns::Padding& padding, const torch::Tensor& tensor) {
  if (padding.bytes == 0) return true;
  const auto* storage_end =
      static_cast<const std::byte*>(tensor.storage().data()) + tensor.storage().nbytes();
  return tensor.is_cpu() && padding.bytes % tensor.element_size() == 0 &&
         padding.begin + padding.bytes <= storage_end && padding.is_zero();
}

// Whether `next` follows `last`, directly or after the padding of a flat bucket.
bool adjacent(const torch::Tensor& last, const torch::Tensor& next) {
  if (!last.storage().is_alias_of(next.storage())) return false;
  if (begin_of(next) == end_of(last)) return true;
  const FlatRuns::Padding padding = padding_after(last);
  return begin_of(next) == padding.begin + padding.bytes && may_take_along(padding, last);
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

bool FlatRuns::Padding::is_zero() const {
  std::uint64_t words[kAlignment / 8] = {};
  std::memcpy(words, begin, bytes);
  std::uint64_t all = 0;
  for (const std::uint64_t word : words) all |= word;
  return (all & value_bits) == 0;
}

Addresses addresses_of(const Tensors& parameters) {
  Addresses addresses;
  addresses.reserve(2 * parameters.size());
  for (const auto& parameter : parameters) {
    addresses.push_back(parameter.const_data_ptr());
    addresses.push_back(address_of(parameter.grad()));
  }
  return addresses;
}

FlatRuns::Contents FlatRuns::contents_of(const torch::Tensor& tensor) {
  return {.type = tensor.scalar_type(), .elements = tensor.numel()};
}

FlatRuns::FlatRuns(const Tensors& parameters) : addresses_(addresses_of(parameters)) {
  std::vector<std::size_t> order;
  contents_.resize(addresses_.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    contents_[2 * i] = contents_of(parameters[i]);
    if (!gradient.defined()) continue;
    if (is_dense(gradient)) contents_[2 * i + 1] = contents_of(gradient);
    if (is_dense(gradient) && gradient.strides() == parameters[i].strides() &&
        optim::alike(gradient, parameters[i])) {
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
    } else if (const torch::Tensor& last = parameters[runs_.back().back()];
               end_of(last) != begin_of(parameters[i])) {
      take_along_padding_after(last);
    }
    runs_.back().push_back(i);
  }
  for (const auto& run : runs_) {
    const torch::Tensor& first = parameters[run.front()];
    const torch::Tensor& last = parameters[run.back()];
    std::int64_t bytes = end_of(last) - begin_of(first);
    // Complete vectors up to the end avoid separate handling of the remainder.
    const Padding padding = padding_after(last), of_gradient = padding_after(last.grad());
    if (padding.bytes == of_gradient.bytes && may_take_along(padding, last) &&
        may_take_along(of_gradient, last.grad())) {
      bytes += static_cast<std::int64_t>(padding.bytes);
      take_along_padding_after(last);
    }
    parameters_.push_back(flat_view(first, bytes));
    gradients_.push_back(flat_view(first.grad(), bytes));
  }
}

void FlatRuns::take_along_padding_after(const torch::Tensor& parameter) {
  for (const torch::Tensor& tensor : {parameter, parameter.grad()}) {
    const Padding padding = padding_after(tensor);
    if (padding.bytes > 0) paddings_.push_back(padding);
  }
}

bool FlatRuns::fit(const Tensors& parameters) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    if (parameters[i].const_data_ptr() != addresses_[2 * i] ||
        contents_of(parameters[i]) != contents_[2 * i]) {
      return false;
    }
    if (addresses_[2 * i + 1] == nullptr) {
      if (gradient.defined()) return false;
    } else if (address_of(gradient) != addresses_[2 * i + 1] ||
               contents_of(gradient) != contents_[2 * i + 1] ||
               gradient.strides() != parameters[i].strides()) {
      return false;
    }
  }
  return std::all_of(paddings_.begin(), paddings_.end(),
                     [](const Padding& padding) { return padding.is_zero(); });
}

torch::Tensor FlatRuns::part(const torch::Tensor& flat, const torch::Tensor& run,
                             const torch::Tensor& parameter) {
  return flat.as_strided(parameter.sizes(), parameter.strides(),
                         flat.storage_offset() + parameter.storage_offset() - run.storage_offset());
}

}  // namespace lockstep::detail
