#include <tests/support/far_device/operators.h>

#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tests/support/far_device/far_device.h>
#include <tests/support/far_device/memory.h>
#include <tests/support/far_device/streams.h>
#include <tests/support/far_device/waits.h>

namespace lockstep::testing_support::far_device {
namespace {

thread_local const char* name_of_reads = "copy to the host";
std::atomic<std::int64_t> blocking_read_count{0};
std::atomic<std::int64_t> recorded_stream_count{0};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::Device(kType, index_of(*device)));
  return at::detail::empty_generic(size, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::Device(kType, index_of(*device)));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::cpu::as_strided(self, size, stride, offset);
}
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::_reshape_alias(self, size, stride);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::cpu::view(self, size); }
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  return at::cpu::resize_(self, size, format);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}
at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  return at::cpu::set_(self, std::move(source));
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::cpu::set_(self, source);
}

// A host tensor on the memory of a far tensor. It owns that memory, because the far tensor may
// later be given other memory.
at::Tensor near(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone() || tensor.numel() == 0) {
    return tensor.is_privateuseone() ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU))
                                     : tensor.detach();
  }
  return at::from_blob(
      far_memory().near(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
      [storage = tensor.storage()](void*) {},
      tensor.options().device(at::kCPU).requires_grad(false));
}

// As on CUDA, the copy is work of the source's stream. It waits for the target's stream, which then
// waits for it.
at::Tensor copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  Queue& queue = queue_of(stream_of_thread(from.device()));
  Queue& other = queue_of(stream_of_thread(to.device()));
  queue.push([&other, point = other.end()] { other.run_to(point); });
  const std::uint64_t copied = queue.push([source = near(from), target = near(to)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    target.copy_(source);
  });
  other.push([&queue, copied] { queue.run_to(copied); });
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!from.is_cpu() && !to.is_cpu() && from.device() != to.device()) {
    return copy_between_devices(from, to);
  }
  const at::Tensor& there = from.is_privateuseone() ? from : to;
  Queue& queue = queue_of(stream_of_thread(there.device()));
  const bool reads = to.is_cpu();
  // A blocking copy has read its source when it returns. A driver also copies memory that is not
  // pinned before it returns.
  const bool is_read_now = from.is_cpu() && !(non_blocking && from.is_pinned());
  const at::Tensor source = is_read_now ? from.clone() : from;
  const std::uint64_t point = queue.push([source = near(source), target = near(to)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    target.copy_(source);
  });
  if (!reads) {
    if (is_read_now) note_wait("copy from the host");
    return to;
  }
  if (non_blocking && to.is_pinned()) return to;
  if (operators_on_copies == 0) blocking_read_count += 1;
  note_wait(name_of_reads);
  queue.run_to(point);
  return to;
}

// Only counts. The queues hold the tensors that they use, so the allocator needs no such call.
void record_stream(at::Tensor&, at::Stream) { ++recorded_stream_count; }

// Makes Module::to() move parameters in place, as between a CPU and a GPU.
bool has_compatible_type(const at::Tensor&, const at::Tensor&) { return true; }

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return to.copy_(from);
}

at::Scalar local_scalar(const at::Tensor& self) {
  const char* const before = std::exchange(name_of_reads, "item");
  const at::Tensor value = self.cpu();
  name_of_reads = before;
  return value.item();
}

// Whether the operator returns its result, or the shape of its result, to the host.
bool reads_on_host(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::nonzero",    "aten::masked_select",      "aten::equal",   "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};
  return names.contains(name);
}

// The kernel of loss scaling cannot read the memory of another device.
void require_one_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.schema().name() != "aten::_amp_foreach_non_finite_check_and_unscale_") return;
  std::vector<at::Tensor> all = torch::jit::peek(stack, 0, 3).toTensorVector();
  all.push_back(torch::jit::peek(stack, 1, 3).toTensor());
  all.push_back(torch::jit::peek(stack, 2, 3).toTensor());
  for (const at::Tensor& tensor : all) {
    TORCH_CHECK(tensor.device() == all.front().device(), op.schema().name(), ": tensors on ",
                all.front().device(), " and on ", tensor.device());
  }
}

void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  require_one_device(op, *stack);
  if (reads_on_host(op.schema().name())) note_wait(op.schema().name());
  const OperatorOnCopies on_copies;
  at::native::cpu_fallback(op, stack);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  const OperatorOnCopies on_copies;
  const std::optional<at::Tensor> near_bias =
      bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
  return at::convolution(input.cpu(), weight.cpu(), near_bias, stride, padding, dilation,
                         transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> mask) {
  const OperatorOnCopies on_copies;
  const std::int64_t channels = weight.size(0);
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(gradient.cpu(), input.cpu(), weight.cpu(), at::IntArrayRef(channels),
                               stride, padding, dilation, transposed, output_padding, groups, mask);
  const auto there = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(input.device()) : tensor;
  };
  return {there(of_input), there(of_weight), there(of_bias)};
}

void register_kernels(torch::Library& library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("view", &view);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_type);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record_stream);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

// The casts that a GPU has. All other operators take what they are given.
void register_casts(torch::Library& m) {
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
}

}  // namespace

void register_operators() {
  // A library unregisters its kernels when it is destroyed.
  static auto* const kernels = new auto(MAKE_TORCH_LIBRARY_IMPL(aten, PrivateUse1));
  register_kernels(*kernels);
  static auto* const other_operators = new auto(MAKE_TORCH_LIBRARY_IMPL(_, PrivateUse1));
  other_operators->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
  static auto* const casts = new auto(MAKE_TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1));
  register_casts(*casts);
  static auto* const other_casts = new auto(MAKE_TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1));
  other_casts->fallback(torch::CppFunction::makeFallthrough());
}

std::int64_t blocking_reads() { return blocking_read_count; }
std::int64_t recorded_streams() { return recorded_stream_count; }

}  // namespace lockstep::testing_support::far_device
