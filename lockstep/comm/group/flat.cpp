#include <lockstep/comm/group/flat.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <lockstep/comm/call/tensor_type.h>

namespace lockstep::comm {
namespace {

torch::Tensor alias_of(const torch::Tensor& tensor, std::int64_t count) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  auto flat = impl->shallow_copy_and_detach(impl->version_counter(),
                                            /*allow_tensor_metadata_change=*/true);
  flat->set_sizes_contiguous({count});
  torch::Tensor result(std::move(flat));
  if (data_type_of(tensor.scalar_type()) != detail::DataType::kByte) return result;
  return result.view(torch::kUInt8);
}

void append(Shape& shape, std::int64_t size) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  if (shape.dimensions < Shape::kPlaces) {
    shape.sizes[shape.dimensions] = static_cast<std::uint32_t>(std::min(size, kLargest));
  }
  ++shape.dimensions;
}

void append_units(Shape& shape, const torch::Tensor& tensor) {
  if (data_type_of(tensor.scalar_type()) == detail::DataType::kByte) {
    append(shape, units_per_element(tensor.scalar_type()));
  }
}

}  // namespace

torch::Tensor flat_alias(const torch::Tensor& tensor) {
  // A tensor with at most one element is contiguous whatever its stride.
  const bool is_flat = tensor.dim() == 1 && tensor.stride(0) == 1 && !tensor.requires_grad() &&
                       data_type_of(tensor.scalar_type()) != detail::DataType::kByte;
  return is_flat ? tensor : alias_of(tensor, tensor.numel());
}

bool is_memory_format(const torch::Tensor& tensor) {
  return tensor.is_contiguous() ||
         (tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast)) ||
         (tensor.dim() == 5 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

bool are_consecutive(const std::vector<torch::Tensor>& tensors) {
  const auto& first = tensors[0];
  const std::byte* end = static_cast<const std::byte*>(first.const_data_ptr());
  for (const auto& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.scalar_type() != first.scalar_type() ||
        !tensor.is_alias_of(first) || tensor.const_data_ptr() != end) {
      return false;
    }
    end += tensor.nbytes();
  }
  return true;
}

torch::Tensor flat_alias(const std::vector<torch::Tensor>& consecutive) {
  std::int64_t count = 0;
  for (const auto& tensor : consecutive) count += tensor.numel();
  return alias_of(consecutive[0], count);
}

Shape logical_shape(const torch::Tensor& tensor) {
  Shape shape;
  for (const std::int64_t size : tensor.sizes()) append(shape, size);
  append_units(shape, tensor);
  return shape;
}

Shape shape_in_memory(const torch::Tensor& tensor) {
  if (tensor.is_contiguous()) return logical_shape(tensor);
  std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return tensor.stride(a) > tensor.stride(b);
  });
  Shape shape;
  shape.channels_last = true;
  for (const std::int64_t dimension : order) append(shape, tensor.size(dimension));
  append_units(shape, tensor);
  return shape;
}

}  // namespace lockstep::comm
