// relu(max_pool2d(conv2d(input, weight, bias), 2)) as one operation.
//
// With few channels the cost of a convolution is its memory traffic and its padding to vectors, not
// its arithmetic: on one core the two layers of the MNIST net take 5 ms per step as separate
// LibTorch operations, and about a quarter of that with this kernel. The fused kernel keeps the
// convolution's output in registers, and its backward pass visits only the positions that have a
// gradient.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::models {

/// `input` [N, C, H, W], `weight` [O, C, K, K], `bias` [O]; stride 1, no padding. Returns [N, O,
/// (H-K+1)/2, (W-K+1)/2]. Differentiable once in all three. As in ATen, the first of equal maxima
/// gets the gradient, and NaN counts as the maximum.
///
/// Uses the fused kernel if conv_pool_relu_is_fused(), and LibTorch's separate operations
/// otherwise. The two agree to float32 rounding. Results do not depend on the number of threads.
at::Tensor conv_pool_relu(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias);

/// True for contiguous float32 tensors on a CPU with AVX2, K of 3 or 5, an even number of output
/// rows and an output width that is a multiple of 8, outside of autocast and of tracing.
bool conv_pool_relu_is_fused(const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias);

}  // namespace lockstep::models
