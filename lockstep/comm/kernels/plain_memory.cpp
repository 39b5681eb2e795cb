#include <lockstep/comm/kernels/plain_memory.h>

#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>

namespace lockstep::comm {

std::size_t bytes_to_allocate(at::IntArrayRef shape, torch::ScalarType dtype) {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      throw ConfigError(lockstep::str("allocate: no tensor has the shape ", shape));
    }
  }
  return static_cast<std::size_t>(bytes);
}

torch::Tensor zeroed_memory(at::IntArrayRef shape, const torch::TensorOptions& options,
                            const std::function<torch::Tensor()>& make) {
  const std::size_t bytes = bytes_to_allocate(shape, c10::typeMetaToScalarType(options.dtype()));
  if (options.device().is_cpu()) {
    const auto left = static_cast<std::uint64_t>(host_memory().left());
    if (bytes > left) {
      throw ConfigError(lockstep::str("allocate: ", bytes, " bytes on this rank, whose host has ",
                                      left, " bytes of memory left; give a smaller shape"));
    }
  }
  try {
    return make ? make() : torch::zeros(shape, options);
  } catch (const c10::Error& error) {
    throw ConfigError(
        lockstep::str("allocate: no memory for ", bytes, " bytes: ", first_line(error)));
  }
}

}  // namespace lockstep::comm
