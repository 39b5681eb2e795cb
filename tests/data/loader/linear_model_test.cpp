// The generated digits must be too hard for a linear model. Otherwise training a net on them would
// show nothing.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/data/loader/loader.h>

namespace lockstep::testing_support {
namespace {

Loader digits(Split split, std::int64_t batch_size) {
  const ImageDataset dataset = make_synthetic_digits(split, {.threads = 2});
  return Loader(dataset, DistributedSampler(dataset.size()), {Normalize{{0.1307}, {0.3081}}},
                {.batch_size = batch_size});
}

TEST(SyntheticDigits, ALinearModelStaysUnder97Percent) {
  torch::set_num_threads(1);  // beside other tests, more threads would only wait for each other
  torch::manual_seed(0);
  Loader train = digits(Split::kTrain, 64);
  Loader test = digits(Split::kTest, 500);
  torch::nn::Linear model(28 * 28, 10);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  // The accuracy no longer rises after the fourth epoch.
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    train.set_epoch(epoch);
    for (const Batch& batch : train) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model(batch.images.flatten(1)), batch.labels).backward();
      optimizer.step();
    }
  }
  torch::NoGradGuard no_grad;
  std::int64_t correct = 0;
  for (const Batch& batch : test) {
    correct +=
        (model(batch.images.flatten(1)).argmax(1) == batch.labels).sum().item<std::int64_t>();
  }
  const double accuracy = static_cast<double>(correct) / static_cast<double>(test.sampler().size());
  EXPECT_LT(accuracy, 0.97);
  EXPECT_GT(accuracy, 0.5);
  RecordProperty("accuracy", std::to_string(accuracy));
}

}  // namespace
}  // namespace lockstep::testing_support
