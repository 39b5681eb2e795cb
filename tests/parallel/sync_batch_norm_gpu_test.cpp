// LibTorch's kernels for synchronised batch normalisation, which only a GPU has, over NCCL with 1
// to 8 ranks. device_test.cpp tests the code around them with stand-ins.
#include <lockstep/parallel/sync_batch_norm.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/normalization.h>

#include <lockstep/core/error.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using torch::Tensor;

constexpr std::int64_t kChannels = 5;

struct GpuNormCase {
  const char* name;
  std::vector<std::int64_t> batches;  // batches of the ranks
  torch::ScalarType type = torch::kFloat32;
  bool channels_last = false;
  double tolerance = 1e-4;
};

Tensor numbers(const GpuNormCase& given, std::int64_t begin, std::int64_t count, double phase) {
  const std::int64_t pixels = kChannels * 4 * 4;
  const Tensor all = torch::arange(begin * pixels, (begin + count) * pixels, torch::kFloat64);
  return (all * 0.37 + phase).cos().mul(3).add(2).view({count, kChannels, 4, 4}).to(given.type);
}

struct Normalised {
  Tensor output, mean, variance;
  std::vector<Tensor> gradients;  // gradients of the input, the weight and the bias
};

// `normalise` gets the input, the weight, the bias and the running statistics.
template <class Normalise>
Normalised normalised(const GpuNormCase& given, std::int64_t begin, std::int64_t count,
                      torch::Device device, torch::ScalarType of_statistics,
                      const Normalise& normalise) {
  const auto statistics = torch::TensorOptions().dtype(of_statistics).device(device);
  Tensor input = numbers(given, begin, count, 0).to(device);
  if (given.channels_last) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  if (device.is_cpu()) input = input.to(of_statistics);
  input.requires_grad_();
  const Tensor weight = torch::linspace(0.5, 2, kChannels, statistics).requires_grad_();
  const Tensor bias = torch::linspace(-1, 1, kChannels, statistics).requires_grad_();
  Normalised result;
  result.mean = torch::zeros({kChannels}, statistics);
  result.variance = torch::ones({kChannels}, statistics);
  result.output = normalise(input, weight, bias, result.mean, result.variance);
  const Tensor gradient = numbers(given, begin, count, 1).to(device);
  result.gradients =
      torch::autograd::grad({(result.output * gradient).sum()}, {input, weight, bias});
  return result;
}

void require_close(const std::string& what, const Tensor& ours, const Tensor& expected,
                   double tolerance) {
  const Tensor wide = ours.detach().to(torch::kCPU, torch::kFloat64);
  if (torch::allclose(wide, expected.detach(), tolerance, tolerance)) return;
  throw Error(str(what, " differs by ", (wide - expected.detach()).abs().max().item<double>()));
}

// This rank's part of what one process computes with the whole batch on a CPU, in float64.
void check_rank(const GpuNormCase& given, ProcessGroup group, torch::Device gpu) {
  const auto rank = static_cast<std::size_t>(group.rank());
  std::int64_t begin = 0, all = 0;
  for (std::size_t r = 0; r < given.batches.size(); ++r) {
    if (r < rank) begin += given.batches[r];
    all += given.batches[r];
  }
  const std::int64_t count = given.batches[rank];
  const auto ours =
      normalised(given, begin, count, gpu, torch::kFloat32,
                 [&](const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const Tensor& mean, const Tensor& variance) {
                   return sync_batch_norm(input, weight, bias, mean, variance, 0.1, 1e-5, group);
                 });
  const auto whole = normalised(given, 0, all, torch::kCPU, torch::kFloat64,
                                [](const Tensor& input, const Tensor& weight, const Tensor& bias,
                                   const Tensor& mean, const Tensor& variance) {
                                  return torch::batch_norm(input, weight, bias, mean, variance,
                                                           /*training=*/true, 0.1, 1e-5,
                                                           /*cudnn_enabled=*/false);
                                });
  const auto part = [&](const Tensor& tensor) { return tensor.narrow(0, begin, count); };
  require_close("output", ours.output, part(whole.output), given.tolerance);
  require_close("running mean", ours.mean, whole.mean, given.tolerance);
  require_close("running variance", ours.variance, whole.variance, given.tolerance);
  require_close("gradient of the input", ours.gradients[0], part(whole.gradients[0]),
                given.tolerance);
  for (const std::size_t i : {1U, 2U}) {  // each rank has its part of the sum
    Tensor sum = ours.gradients[i].clone();
    group.all_reduce(sum);
    require_close(i == 1 ? "gradient of the weight" : "gradient of the bias", sum,
                  whole.gradients[i], 100 * given.tolerance);
  }
}

// An uneven batch has one sample on the first rank, two on the next, and so on, or one fewer.
std::vector<GpuNormCase> gpu_norm_cases(int size) {
  const std::vector<std::int64_t> even(static_cast<std::size_t>(size), 3);
  std::vector<std::int64_t> uneven, first_has_none;
  for (int rank = 0; rank < size; ++rank) {
    uneven.push_back(rank + 1);
    first_has_none.push_back(size == 1 ? 2 : rank);
  }
  return {{"even", even},
          {"uneven", uneven},
          {"the first rank has nothing", first_has_none},
          {"channels last", uneven, torch::kFloat32, true},
          {"bfloat16", uneven, torch::kBFloat16, true, 5e-2},
          {"float16", uneven, torch::kFloat16, false, 1e-2}};
}

class SyncBatchNormOnGpus : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNormOnGpus, testing_support::kOneToEightRanks,
                         testing_support::name_of_ranks);

TEST_P(SyncBatchNormOnGpus, IsThatOfTheWholeBatchOnACpu) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    for (const GpuNormCase& each : gpu_norm_cases(group.size())) {
      try {
        check_rank(each, group, gpu);
      } catch (const std::exception& error) {
        throw Error(str(each.name, ": ", error.what()));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
