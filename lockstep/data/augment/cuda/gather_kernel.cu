#include <lockstep/data/augment/cuda/gather_kernel.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

namespace lockstep::data {
namespace {

constexpr int kThreads = 256;

__device__ void store(float* to, float value) { *to = value; }
__device__ void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

// Each thread makes one pixel with all its channels. Neighbours read and write neighbouring bytes.
template <class Number>
__global__ void gather(GatherShape shape, const GatherImage* images, const std::uint8_t* source,
                       Number* output) {
  __shared__ GatherImage image;
  constexpr int kWords = sizeof(GatherImage) / sizeof(int);
  static_assert(kWords <= kThreads && sizeof(GatherImage) % sizeof(int) == 0);
  if (threadIdx.x < kWords) {
    reinterpret_cast<int*>(&image)[threadIdx.x] =
        reinterpret_cast<const int*>(images + blockIdx.y)[threadIdx.x];
  }
  __syncthreads();
  const int pixel = blockIdx.x * kThreads + threadIdx.x;
  if (pixel >= shape.height * shape.width) return;
  const int y = pixel / shape.width;
  const int x = pixel - y * shape.width;
  for (int c = 0; c < shape.channels; ++c) {
    store(output + gather_place(shape, blockIdx.y, c, y, x),
          gathered(shape, image, source, c, y, x));
  }
}

// A grid has at most 65,535 images.
constexpr std::int64_t kMostBlocks = 65535;

template <class Number>
void run(const GatherLaunch& launch, cudaStream_t stream) {
  const int pixels = launch.shape.height * launch.shape.width;
  const std::int64_t numbers = std::int64_t{pixels} * launch.shape.channels;
  for (std::int64_t first = 0; first < launch.count; first += kMostBlocks) {
    const std::int64_t left = launch.count - first;
    const dim3 grid((pixels + kThreads - 1) / kThreads, left < kMostBlocks ? left : kMostBlocks);
    gather<<<grid, kThreads, 0, stream>>>(launch.shape, launch.images + first, launch.source,
                                          static_cast<Number*>(launch.output) + first * numbers);
  }
}

}  // namespace

int launch_gather(const GatherLaunch& launch, CUstream_st* stream) {
  switch (launch.type) {
    case GatherType::kFloat32:
      run<float>(launch, stream);
      break;
    case GatherType::kBFloat16:
      run<__nv_bfloat16>(launch, stream);
      break;
    case GatherType::kFloat16:
      run<__half>(launch, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace lockstep::data
