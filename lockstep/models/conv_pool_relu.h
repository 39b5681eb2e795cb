// relu(max_pool2d(conv2d(input, weight, bias), 2)) as one operation.
//
// With few channels a convolution's cost is its traffic and its padding to vectors, not its
// arithmetic: on one core the two layers of the MNIST net take 5 ms a step as separate LibTorch
// operations and about a quarter of that here. The fused kernel keeps the convolution's output in
// registers, and its backward pass visits only the positions that have a gradient.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// `input` [N, C, H, W], `weight` [O, C, K, K], `bias` [O]; stride 1, no padding. Returns
/// [N, O, (H-K+1)/2, (W-K+1)/2]. Differentiable once in all three; among equals the first maximum
/// gets the gradient and NaN wins, as in ATen.
///
/// The fused kernel runs where conv_pool_relu_is_fused(); elsewhere the same is composed of
/// LibTorch's operations. The two agree to float32 rounding. Results do not depend on the number of
/// threads.
at::Tensor conv_pool_relu(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias);

/// True for contiguous float32 tensors on a CPU with AVX2, K of 3 or 5, an even number of output
/// rows and an output width that is a multiple of 8, outside of autocast and of tracing.
bool conv_pool_relu_is_fused(const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias);

}  // namespace lockstep
