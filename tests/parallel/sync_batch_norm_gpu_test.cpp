// LibTorch's kernels for synchronised batch normalisation, which only a GPU has. device_test.cpp
// tests the code around them with stand-ins.
#include <lockstep/parallel/sync_batch_norm.h>

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/functional/normalization.h>

#include <lockstep/core/error.h>
#include <tests/support/devices/gpu.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::kGpu;
using testing_support::kNoGpuFound;
using testing_support::no_errors;
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
void check_rank(const GpuNormCase& given, ProcessGroup group) {
  const auto rank = static_cast<std::size_t>(group.rank());
  std::int64_t begin = 0, all = 0;
  for (std::size_t r = 0; r < given.batches.size(); ++r) {
    if (r < rank) begin += given.batches[r];
    all += given.batches[r];
  }
  const std::int64_t count = given.batches[rank];
  const auto ours =
      normalised(given, begin, count, kGpu, torch::kFloat32,
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

TEST(SyncBatchNormOnGpu, OverNcclIsThatOfACpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  if (!nccl_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  ProcessGroup group = init_process_group({.backend = "nccl",
                                           .timeout = std::chrono::seconds(60),
                                           .device = kGpu,
                                           .environment = WorkerEnvironment{}});
  for (const GpuNormCase& each :
       {GpuNormCase{"float32", {6}}, GpuNormCase{"channels_last", {6}, torch::kFloat32, true},
        GpuNormCase{"bfloat16", {6}, torch::kBFloat16, true, 5e-2},
        GpuNormCase{"float16", {6}, torch::kFloat16, false, 1e-2}}) {
    EXPECT_NO_THROW(check_rank(each, group)) << each.name;
  }
}

TEST(SyncBatchNormOnGpu, OfTwoRanksIsThatOfTheWholeBatch) {
  const auto errors = testing_support::run_two_ranks_on_a_gpu([](const ProcessGroup& group) {
    for (const GpuNormCase& each : {GpuNormCase{"even", {3, 3}}, GpuNormCase{"uneven", {5, 1}},
                                    GpuNormCase{"channels_last", {3, 2}, torch::kFloat32, true},
                                    GpuNormCase{"one has nothing", {0, 4}}}) {
      try {
        check_rank(each, group);
      } catch (const std::exception& error) {
        throw Error(str(each.name, ": ", error.what()));
      }
    }
  });
  if (errors == kNoGpuFound) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
