// The C++ blocks of README.md, each in a function with the names that a user's program already has;
// tools/check_documentation.py compares them. Compiled with strict warnings; never run.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>  // torch::nn, torch::optim

namespace readme {

template <class... Values>
void take(const Values&...) {}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear(4, 2)); }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor criterion(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}
void train(const torch::Tensor& images, const torch::Tensor& labels) { take(images, labels); }

void in_your_program(Net net, std::int64_t size, torch::optim::Optimizer& optimizer, int epoch,
                     const torch::Tensor& images, const torch::Tensor& labels) {
  auto group = lockstep::init_process_group();        // under torchrun, Slurm, mpirun, or alone
  lockstep::DistributedDataParallel ddp(net, group);  // rank 0's weights go to all
  lockstep::DistributedSampler sampler(size, {.rank = group.rank(), .world_size = group.size()});
  for (const auto& rows : torch::tensor(sampler.indices(epoch)).split(64)) {
    optimizer.zero_grad();
    auto loss = criterion(ddp.forward(images.index_select(0, rows)), labels.index_select(0, rows));
    loss.backward();  // also averages the gradients over all ranks
    optimizer.step();
  }
}

void several_devices(Net net, const torch::Tensor& x, const torch::Tensor& y) {
  lockstep::DataParallel dp(net, {"cuda:0", "cuda:1"});  // a replica and a thread for each device
  auto loss = dp.loss(criterion, x, y);  // or criterion(dp.forward(x), y), as in PyTorch
  loss.backward();                       // sums the gradients into those of net
}

void in_stages(torch::nn::Sequential stage0, torch::nn::Sequential stage1, torch::Device device0,
               torch::Device device1, const torch::Tensor& x, const torch::Tensor& y) {
  lockstep::Pipeline pipe({stage0, stage1}, {device0, device1},
                          {.micro_batches = 8, .schedule = lockstep::Schedule::kZbH1});
  torch::optim::SGD optimizer(pipe.parameters(), 0.1);  // or any other optimizer
  optimizer.zero_grad();
  auto loss = pipe.step(criterion, x, y);  // forward and backward of the whole batch
  optimizer.step();
  take(loss);
}

void data(const lockstep::DistributedSampler& sampler, const std::vector<double>& mean,
          const std::vector<double>& deviation) {
  using namespace lockstep;
  Loader loader(load_image_folder("photos/train"), sampler,
                {RandomResizedCrop{224}, RandomHorizontalFlip{}, ColorJitter{0.4},
                 Normalize{mean, deviation}},
                {.batch_size = 64, .threads = 2});
  for (const Batch& batch : loader) train(batch.images, batch.labels);
}

void communication(lockstep::ProcessGroup& group, torch::Tensor& tensor, torch::Tensor& other) {
  group.all_reduce(tensor);  // in place, on all ranks: the sum
  auto work = group.async_all_reduce(other, lockstep::ReduceOp::kAverage);
  work->wait();  // after some computation
  if (group.rank() == 0) group.send(tensor, /*destination=*/1);
  if (group.rank() == 1) group.recv(tensor, /*source=*/0);
  auto row = group.split(group.rank() / 4);               // one group for every four ranks
  auto bucket = group.allocate({1024}, torch::kFloat32);  // shared by ranks of a host: no copies
  take(row, bucket);
}

}  // namespace readme
