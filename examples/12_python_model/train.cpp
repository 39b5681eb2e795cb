// Trains a model that Python exported, on any number of ranks, and saves the weights for Python.
// README.md explains the steps.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

namespace {

constexpr std::int64_t kClasses = 3, kSide = 32, kPictures = 96, kBatch = 24;
constexpr int kEpochs = 8;

struct Pictures {
  torch::Tensor images;  // [kPictures, 3, kSide, kSide]
  torch::Tensor labels;
};

// Noisy stripes: vertical, horizontal or diagonal ones.
Pictures make_pictures() {
  torch::manual_seed(0);
  const torch::Tensor x = torch::arange(kSide, torch::kFloat).view({1, 1, kSide});
  const torch::Tensor y = x.transpose(1, 2);
  const std::vector<torch::Tensor> directions = {x + 0 * y, y + 0 * x, x + y};
  std::vector<torch::Tensor> images;
  for (std::int64_t i = 0; i < kPictures; ++i) {
    const torch::Tensor stripes = (directions[static_cast<std::size_t>(i % kClasses)] + i).sin();
    images.push_back(stripes + 0.3 * torch::randn({3, kSide, kSide}));
  }
  return {torch::stack(images), torch::arange(kPictures) % kClasses};
}

void train(const std::string& path, const std::string& output) {
  auto group = lockstep::init_process_group();
  if (kBatch % group.size() != 0) {
    throw lockstep::ConfigError("a batch has " + std::to_string(kBatch) +
                                " pictures: start a number of ranks that divides it");
  }
  torch::set_num_threads(1);
  lockstep::Program net(path);
  lockstep::DistributedDataParallel ddp(net, group);
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.05, .momentum = 0.9});

  const Pictures pictures = make_pictures();
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    torch::Tensor sum = torch::zeros({});
    for (std::int64_t begin = 0; begin < kPictures; begin += kBatch) {
      // This rank's share: every group.size()-th picture of the batch.
      const auto share = [&](const torch::Tensor& all) {
        return all.slice(0, begin + group.rank(), begin + kBatch, group.size());
      };
      optimizer.zero_grad();
      const torch::Tensor logits = ddp.forward(share(pictures.images));
      const torch::Tensor loss = torch::cross_entropy_loss(logits, share(pictures.labels));
      loss.backward();
      optimizer.step();
      sum += loss.detach();
    }
    group.all_reduce(sum, lockstep::ReduceOp::kAverage);
    if (group.rank() == 0) {
      std::printf("epoch %2d: loss %.6f\n", epoch + 1, sum.item<double>() * kBatch / kPictures);
    }
  }

  net->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor logits = net->forward(pictures.images);
  if (group.rank() == 0) {
    const auto right = logits.argmax(1).eq(pictures.labels).sum().item<std::int64_t>();
    std::printf("%ld of %ld pictures are right\n", static_cast<long>(right),
                static_cast<long>(kPictures));
    lockstep::save_torch_file(output + ".pt", lockstep::state_dict(*net));
    lockstep::save_torch_file(
        output + "-seen.pt",
        {{"images", pictures.images}, {"labels", pictures.labels}, {"logits", logits}});
  }
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw lockstep::ConfigError("usage: python_model NET.pt2 OUTPUT");
  train(argv[1], argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
