#include <lockstep/data/samplers/epoch_generator.h>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::data {

at::Generator epoch_generator(std::uint64_t seed, std::int64_t epoch) {
  return at::make_generator<at::CPUGeneratorImpl>(seed + static_cast<std::uint64_t>(epoch));
}

std::vector<std::int64_t> to_indices(const torch::Tensor& tensor) {
  const auto* begin = tensor.const_data_ptr<std::int64_t>();
  return {begin, begin + tensor.numel()};
}

std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::int64_t epoch) {
  return to_indices(torch::randperm(size, epoch_generator(seed, epoch), torch::kInt64));
}

}  // namespace lockstep::data
