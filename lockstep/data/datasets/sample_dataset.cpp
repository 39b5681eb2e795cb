#include <lockstep/data/datasets/sample_dataset.h>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep {

at::Generator generator_of(const SampleKey& key) {
  PhiloxStream stream = key.stream();
  const std::uint64_t low = stream.next();
  return at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{stream.next()} << 32 | low);
}

}  // namespace lockstep
