// For processors without the kernels: no shape is supported, so the other functions are not called.
#include <lockstep/models/kernels/conv_pool_relu_kernel.h>

namespace lockstep::kernels {

bool supports(const ConvPoolShape&) { return false; }

void forward(const ConvPoolShape&, const float*, const float*, const float*, std::int64_t,
             std::int64_t, float*, std::uint8_t*) {}

void backward(const ConvPoolShape&, const BackwardInput&, std::int64_t, std::int64_t,
              const BackwardOutput&) {}

}  // namespace lockstep::kernels
