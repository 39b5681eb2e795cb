// Hand-written synchronous SGD, as in PyTorch's first distributed tutorial: each rank has its own
// part of MNIST, and the ranks average their gradients after each backward. Runs on any number of
// ranks, including one. The argument is the backend (default "auto").
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::ProcessGroup;

namespace {

constexpr std::int64_t kTrainingImages = 12'000;  // images of all ranks together
constexpr std::int64_t kTestImages = 1'000;
constexpr std::int64_t kGlobalBatch = 128;
constexpr std::int64_t kEpochs = 2;
constexpr std::uint64_t kSeed = 1234;

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::relu(torch::max_pool2d(conv1(images), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop(conv2(x)), 2));
    x = torch::dropout(torch::relu(fc1(x.flatten(1))), 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
  torch::nn::Dropout2d conv2_drop = register_module("conv2_drop", torch::nn::Dropout2d());
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(320, 50));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(50, 10));
};
TORCH_MODULE(Net);

// The first images of MNIST if it is on this machine, otherwise generated digits.
lockstep::ImageDataset load_digits(lockstep::Split split, std::int64_t count) {
  const auto folder = lockstep::find_data({.name = "mnist"});
  if (!folder) return lockstep::make_synthetic_digits(split, {.count = count});
  std::vector<std::int64_t> first(static_cast<std::size_t>(count));
  std::iota(first.begin(), first.end(), 0);
  return lockstep::subset(lockstep::load_mnist(*folder, split), std::move(first));
}

// --- Messages ---

void send_and_receive(ProcessGroup& group) {
  if (group.size() == 1) return;  // there is no rank to send to
  auto number = torch::zeros({1});
  if (group.rank() == 0) {
    number += 1;
    group.send(number, /*destination=*/1);
  } else if (group.rank() == 1) {
    group.recv(number, /*source=*/0);
  }
  require(group.rank() > 1 || number.item<float>() == 1, "rank 1 has what rank 0 sent");
}

// Sends each rank's numbers once around the ring, and every rank adds them. group.all_reduce()
// sends less, and adds in the same order on all ranks.
void all_reduce_by_hand(ProcessGroup& group, const torch::Tensor& tensor) {
  const int left = (group.rank() + group.size() - 1) % group.size();
  const int right = (group.rank() + 1) % group.size();
  torch::Tensor travelling = tensor.clone();
  for (int step = 1; step < group.size(); ++step) {
    const torch::Tensor arrived = torch::empty_like(travelling);
    const auto sent = group.isend(travelling, right);  // a send() may wait for its receive
    group.recv(arrived, left);
    sent->wait();
    tensor.add_(arrived);
    travelling = arrived;
  }
}

// --- Gradients ---

void average_gradients(ProcessGroup& group, const torch::nn::Module& net) {
  for (const torch::Tensor& parameter : net.parameters()) {
    group.all_reduce(parameter.grad());
    parameter.grad().div_(group.size());
  }
}

torch::Tensor flat_gradients(const torch::nn::Module& net) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : net.parameters())
    flat.push_back(parameter.grad().flatten());
  return torch::cat(flat);
}

// The average over the ranks must equal the gradient of all ranks' samples together.
void check_average(ProcessGroup& group) {
  Net net;
  net->eval();  // without dropout, which would change the gradient from call to call
  std::vector<torch::Tensor> parts;
  for (int rank = 0; rank < group.size(); ++rank) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank));
    parts.push_back(torch::randn({8, 1, 28, 28}, generator));
  }
  const auto compute_gradients = [&](const torch::Tensor& images) {
    const torch::Tensor labels = torch::zeros({images.size(0)}, torch::kInt64);
    net->zero_grad();
    torch::nll_loss(net->forward(images), labels).backward();
  };
  compute_gradients(torch::cat(parts));
  const torch::Tensor expected = flat_gradients(*net);

  compute_gradients(parts[static_cast<std::size_t>(group.rank())]);
  const torch::Tensor by_hand = flat_gradients(*net);
  all_reduce_by_hand(group, by_hand);
  by_hand.div_(group.size());
  average_gradients(group, *net);
  require(torch::allclose(flat_gradients(*net), expected, 1e-4, 1e-5), "average_gradients");
  require(torch::allclose(by_hand, expected, 1e-4, 1e-5), "all_reduce_by_hand");
}

// --- Training ---

// Trains `net` and returns the mean loss of each epoch over the batches of all ranks.
std::vector<double> train(ProcessGroup& group, Net& net) {
  const lockstep::ImageDataset digits = load_digits(lockstep::Split::kTrain, kTrainingImages);
  const auto partitions = lockstep::DataPartitioner::equal(digits.size(), group.size(), kSeed);
  lockstep::Loader loader(
      digits, lockstep::SubsetRandomSampler(partitions.use(group.rank()), kSeed),
      {lockstep::Normalize{{0.1307}, {0.3081}}},
      {.batch_size = std::max<std::int64_t>(kGlobalBatch / group.size(), 1), .drop_last = true});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  // The sizes of the parts may differ by one image, and therefore by one batch. All ranks stop
  // together.
  auto least_steps = torch::full({1}, loader.steps_per_epoch());
  group.all_reduce(least_steps, lockstep::ReduceOp::kMin);
  const auto steps = least_steps.item<std::int64_t>();

  std::vector<double> losses;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader.set_epoch(epoch);
    auto sum = torch::zeros({1});
    lockstep::Batch batch;
    for (std::int64_t step = 0; step < steps && loader.next(batch); ++step) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(net->forward(batch.images), batch.labels);
      loss.backward();
      average_gradients(group, *net);
      optimizer.step();
      sum += loss.detach();
    }
    group.all_reduce(sum);
    losses.push_back(sum.item<double>() / static_cast<double>(steps * group.size()));
    if (group.rank() == 0) {
      std::printf("epoch %d: loss %.4f\n", static_cast<int>(epoch + 1), losses.back());
    }
  }
  return losses;
}

// Returns the fraction of test images that are classified correctly. Each rank evaluates a part.
double accuracy(ProcessGroup& group, Net& net) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const lockstep::ImageDataset digits = load_digits(lockstep::Split::kTest, kTestImages);
  lockstep::Loader loader(digits,
                          lockstep::EvaluationSampler(digits.size(), group.rank(), group.size()),
                          {lockstep::Normalize{{0.1307}, {0.3081}}}, {.batch_size = 100});
  auto correct = torch::zeros({1}, torch::kInt64);
  for (const lockstep::Batch& batch : loader) {
    correct += (net->forward(batch.images).argmax(1) == batch.labels).sum();
  }
  group.all_reduce(correct);
  return correct.item<double>() / static_cast<double>(digits.size());
}

void require_equal_replicas(ProcessGroup& group, const torch::nn::Module& net) {
  for (const torch::Tensor& parameter : net.parameters()) {
    const torch::Tensor first = parameter.detach().clone();
    group.broadcast(first, /*root=*/0);
    require(torch::equal(first, parameter), "replicas are equal");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  torch::set_num_threads(1);
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  torch::manual_seed(kSeed);  // all ranks start with the same net
  send_and_receive(group);
  check_average(group);

  Net net;
  torch::manual_seed(kSeed + 1 + static_cast<std::uint64_t>(group.rank()));  // differs on each rank
  const std::vector<double> losses = train(group, net);
  require_equal_replicas(group, *net);
  require(losses.back() < losses.front(), "the loss falls");
  const double share = accuracy(group, net);
  require(share > 0.8, "the net knows its digits");
  group.barrier();
  if (group.rank() != 0) return 0;
  std::printf("accuracy %.1f%%\n", 100 * share);
  std::printf("group of %d over %s: all results are right\n", group.size(),
              group.backend().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
