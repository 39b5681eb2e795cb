#include <lockstep/export/trace/stand_in.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

namespace lockstep::onnx {
namespace {

// a * b / c, or the largest number in place of a larger one, which is the stride of no tensor.
std::int64_t scaled(std::int64_t a, std::int64_t b, std::int64_t c) {
  __extension__ using Wide = __int128;  // a large image, times a million images, times its gaps
  constexpr Wide kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min<Wide>(static_cast<Wide>(a) * b / c, kMost));
}

// Strides like the recorded ones, which are those of `recorded` sizes, for other sizes: with the
// same order of the dimensions and the same gaps between elements.
std::vector<std::int64_t> similar_strides(const std::vector<std::int64_t>& recorded,
                                          const std::vector<std::int64_t>& strides,
                                          const std::vector<std::int64_t>& sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    // Dimensions of one element have any stride; they keep their place.
    return recorded[a] > 1 && recorded[b] > 1 && strides[a] > strides[b];
  });
  std::vector<std::int64_t> result(sizes.size(), 0);
  std::int64_t dense = 1;           // the stride without a gap, for `sizes`
  std::int64_t recorded_dense = 1;  // likewise, for `recorded`
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (strides[*d] == 0 && recorded[*d] > 1) continue;  // expanded
    const std::int64_t stride =
        recorded[*d] > 1 ? std::max(strides[*d], recorded_dense) : recorded_dense;
    // A slice of 2 of 3 columns leaves a stride that is no multiple of the columns.
    result[*d] = scaled(stride, dense, recorded_dense);
    dense = scaled(result[*d], std::max<std::int64_t>(sizes[*d], 1), 1);
    recorded_dense = scaled(stride, std::max<std::int64_t>(recorded[*d], 1), 1);
  }
  return result;
}

}  // namespace

at::Tensor stand_in_for(const c10::TensorType& type, const std::vector<std::int64_t>& sizes) {
  const auto scalar_type = type.scalarType().value_or(at::kFloat);
  const auto device = type.device().value_or(at::kCPU);
  const c10::DispatchKey key =
      c10::computeDispatchKey(scalar_type, /*layout=*/std::nullopt, device);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(scalar_type), device);
  tensor.unsafeGetTensorImpl()->set_storage_access_should_throw();
  const auto recorded = type.sizes().concrete_sizes();
  const auto strides = type.strides().concrete_sizes();
  if (recorded && strides && recorded->size() == sizes.size()) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
        sizes, similar_strides(*recorded, *strides, sizes));
  } else {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  return tensor;
}

}  // namespace lockstep::onnx
