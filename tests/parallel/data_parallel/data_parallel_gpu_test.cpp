// DataParallel on GPUs, compared with plain LibTorch on the CPU. The replicas use as many GPUs as
// there are. With fewer GPUs than replicas, a GPU is listed several times.
#include <lockstep/parallel/data_parallel.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing_support::copy_state;
using testing_support::difference;
using testing_support::SmallNet;

torch::Tensor entropy_on_gpus(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

class DataParallelOnGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
    at::globalContext().setAllowTF32CuDNN(false);  // the results are compared with those of a CPU
  }

  static std::vector<torch::Device> gpus(int count) {
    std::vector<torch::Device> devices;
    const int existing = static_cast<int>(torch::cuda::device_count());
    for (int i = 0; i < count; ++i) {
      devices.emplace_back(torch::kCUDA, static_cast<c10::DeviceIndex>(i % existing));
    }
    return devices;
  }
};

TEST_F(DataParallelOnGpus, TrainsAsOneProcess) {
  const torch::Tensor x = testing_support::normal({11, 4}, 3);
  const torch::Tensor y = testing_support::classes(11, 3, 4);
  for (const int replicas : {1, 2, 4}) {
    for (const bool on_each : {false, true}) {
      SCOPED_TRACE(str(replicas, " replicas, loss on each: ", on_each));
      SmallNet oracle, net;
      copy_state(*net, *oracle);
      net->to(gpus(1)[0]);
      DataParallel dp(net, gpus(replicas), {.share_gpus = true});
      torch::optim::SGD expected(oracle->parameters(), 0.1), optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        expected.zero_grad();
        entropy_on_gpus(oracle->forward(x), y).backward();
        expected.step();
        optimizer.zero_grad();
        const torch::Tensor loss = on_each ? dp.loss(entropy_on_gpus, x, y)
                                           : entropy_on_gpus(dp.forward(x), y.to(gpus(1)[0]));
        loss.backward();
        optimizer.step();
      }
      const auto got = net->parameters(), wanted = oracle->parameters();
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(difference(got[i].cpu(), wanted[i]), 1e-4) << "parameter " << i;
      }
    }
  }
}

// The first replica writes the module's running statistics; the others have copies.
TEST_F(DataParallelOnGpus, KeepsTheStatisticsOfTheFirstReplica) {
  const torch::Tensor x = testing_support::normal({8, 4}, 5);
  SmallNet oracle(true), net(true);
  copy_state(*net, *oracle);
  net->to(gpus(1)[0]);
  DataParallel dp(net, gpus(2), {.share_gpus = true});
  dp.forward(x);
  oracle->forward(x.narrow(0, 0, 4));
  const auto got = net->buffers(), wanted = oracle->buffers();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(difference(got[i].cpu(), wanted[i]), 1e-4) << "buffer " << i;
  }
}

TEST_F(DataParallelOnGpus, RefusesAGpuThatIsListedTwiceUnlessAsked) {
  const auto gpu = gpus(1)[0];
  SmallNet net;
  net->to(gpu);
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { DataParallel dp(net, {gpu, gpu}); }),
            "DataParallel: cuda:0 is listed twice; use a different GPU for each replica, or set "
            "DataParallelOptions::share_gpus");
}

}  // namespace
}  // namespace lockstep
