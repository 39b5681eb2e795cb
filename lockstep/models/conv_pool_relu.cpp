#include <lockstep/models/conv_pool_relu.h>

#include <ATen/TensorIterator.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/core/error.h>
#include <lockstep/models/kernels/conv_pool_relu_kernel.h>

namespace lockstep::models {
namespace {

using kernels::BackwardInput;
using kernels::BackwardOutput;
using kernels::ConvPoolShape;
using kernels::kLanes;

// Number of images whose gradients are added up together. Fixed, so that the order of additions,
// and thus the last bit, does not depend on the number of threads.
constexpr std::int64_t kChunk = 16;

// Calls work(first, end) for parts of the images [0, count), whole chunks except the last one, on
// LibTorch's threads. at::parallel_for() is a template that is serial in files compiled without
// OpenMP, so this uses TensorIterator, which divides its elements among threads inside LibTorch.
// Here the elements are bytes, one per chunk, and only their addresses are used. They form one row,
// which the second dimension of the loop counts.
template <typename Work>
void for_each_chunk(std::int64_t count, const Work& work) {
  const at::Tensor chunks = at::empty({(count + kChunk - 1) / kChunk}, at::kByte);
  const auto* const first = static_cast<const char*>(chunks.const_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(chunks);
  iterator.for_each(
      [&](char** data, const std::int64_t* /*strides*/, std::int64_t size, std::int64_t /*rows*/) {
        const std::int64_t begin = data[0] - first;
        work(begin * kChunk, std::min(count, (begin + size) * kChunk));
      },
      /*grain_size=*/1);
}

ConvPoolShape shape_of(const at::Tensor& input, const at::Tensor& weight) {
  return {.channels_in = input.size(1),
          .height = input.size(2),
          .width = input.size(3),
          .channels_out = weight.size(0),
          .kernel = weight.size(2)};
}

bool is_plain(const at::Tensor& tensor, std::int64_t dimensions) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == at::kFloat && tensor.dim() == dimensions &&
         tensor.is_contiguous() && !tensor.is_neg();  // a lazy negative's memory has other values
}

at::Tensor weight_channels_last(const at::Tensor& weight) {
  const std::int64_t channels = weight.size(1);
  return at::constant_pad_nd(weight.permute({0, 2, 3, 1}),
                             {0, kernels::padded(channels) - channels})
      .contiguous();
}

struct Gradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
};

Gradients backward_kernel(const at::Tensor& grad_pooled, const at::Tensor& input,
                          const at::Tensor& weight, const at::Tensor& position, bool want_input) {
  const ConvPoolShape shape = shape_of(input, weight);
  const std::int64_t images = input.size(0);
  const std::int64_t chunks = (images + kChunk - 1) / kChunk;
  const at::Tensor padded_weight = want_input ? weight_channels_last(weight) : at::Tensor();
  at::Tensor grad_input = want_input ? at::empty_like(input) : at::Tensor();
  at::Tensor grad_weight = at::zeros(
      {chunks, shape.channels_out, shape.channels_in, shape.kernel, kLanes}, weight.options());
  at::Tensor grad_bias = at::zeros({chunks, shape.channels_out}, weight.options());

  const BackwardInput in = {
      .grad_pooled = grad_pooled.const_data_ptr<float>(),
      .position = position.const_data_ptr<std::uint8_t>(),
      .input = input.const_data_ptr<float>(),
      .weight_channels_last = want_input ? padded_weight.const_data_ptr<float>() : nullptr};
  const std::int64_t filters = shape.channels_out * shape.channels_in * shape.kernel * kLanes;
  float* const grad_input_data = want_input ? grad_input.mutable_data_ptr<float>() : nullptr;
  float* const grad_weight_data = grad_weight.mutable_data_ptr<float>();
  float* const grad_bias_data = grad_bias.mutable_data_ptr<float>();
  for_each_chunk(images, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; image += kChunk) {
      const std::int64_t chunk = image / kChunk;
      kernels::backward(shape, in, image, std::min(end, image + kChunk),
                        {.grad_input = grad_input_data,
                         .grad_weight = grad_weight_data + chunk * filters,
                         .grad_bias = grad_bias_data + chunk * shape.channels_out});
    }
  });
  return {grad_input, grad_weight.sum(0).narrow(3, 0, shape.kernel).contiguous(), grad_bias.sum(0)};
}

class ConvPoolRelu : public torch::autograd::Function<ConvPoolRelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    const ConvPoolShape shape = shape_of(input, weight);
    const std::vector<std::int64_t> sizes = {input.size(0), shape.channels_out,
                                             shape.pooled_height(), shape.pooled_width()};
    at::Tensor pooled = at::empty(sizes, input.options());
    at::Tensor position = at::empty(sizes, input.options().dtype(at::kByte));
    const float* const input_data = input.const_data_ptr<float>();
    const float* const weight_data = weight.const_data_ptr<float>();
    const float* const bias_data = bias.const_data_ptr<float>();
    float* const pooled_data = pooled.mutable_data_ptr<float>();
    std::uint8_t* const position_data = position.mutable_data_ptr<std::uint8_t>();
    for_each_chunk(input.size(0), [&](std::int64_t begin, std::int64_t end) {
      kernels::forward(shape, input_data, weight_data, bias_data, begin, end, pooled_data,
                       position_data);
    });
    context->save_for_backward({input, weight, position});
    return pooled;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw ConfigError(
          "conv_pool_relu: has no second derivative; call backward() without "
          "create_graph");
    }
    const auto saved = context->get_saved_variables();
    const Gradients result = backward_kernel(gradients[0].resolve_neg().contiguous(), saved[0],
                                             saved[1], saved[2], context->needs_input_grad(0));
    return {result.input, result.weight, result.bias};
  }
};

}  // namespace

bool conv_pool_relu_is_fused(const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias) {
  return is_plain(input, 4) && is_plain(weight, 4) && is_plain(bias, 1) &&
         weight.size(2) == weight.size(3) && weight.size(1) == input.size(1) &&
         bias.size(0) == weight.size(0) && !at::autocast::is_autocast_enabled(at::kCPU) &&
         !torch::jit::tracer::isTracing() && kernels::supports(shape_of(input, weight));
}

at::Tensor conv_pool_relu(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias) {
  if (conv_pool_relu_is_fused(input, weight, bias)) {
    return ConvPoolRelu::apply(input, weight, bias);
  }
  return at::relu(at::max_pool2d(at::conv2d(input, weight, bias), 2));
}

}  // namespace lockstep::models
