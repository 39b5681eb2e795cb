// The C++ lines of docs/from_pytorch.md in order, which tools/check_documentation.py compares.
// Compiled with strict warnings; never run.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/launch/launcher.h>
#include <lockstep/lockstep.h>
#include <torch/torch.h>

namespace from_pytorch {

using namespace lockstep;

template <class... Values>
void take(const Values&...) {}

// Names that the user's program already has.
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
void work() {}

// --- Starting ---

void join_the_others() {
  auto group = init_process_group();
  take(group.rank());
}

void join_over_gloo() {
  auto group = init_process_group({.backend = "gloo"});
  take(group.rank());
}

void join_with_a_gpu(c10::DeviceIndex index) {
  ProcessGroupOptions options;
  options.device = torch::Device(torch::kCUDA, index);
  options.timeout = std::chrono::minutes(30);
  auto group = init_process_group(options);
  take(group.rank());
}

int spawn() {
  const auto result = launch_ranks({.nproc_per_node = 4}, [] { work(); });
  return result.exit_code;
}

void who_am_i(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  const int local_rank = group.local_rank();
  take(rank, size, local_rank);
}

// --- Collectives and messages ---

void collectives(ProcessGroup& group, torch::Tensor t, torch::Tensor out, Tensors tensors) {
  group.all_reduce(t);
  group.all_reduce(t, ReduceOp::kAverage);
  auto work = group.async_all_reduce(t);
  work->wait();
  group.broadcast(t, /*root=*/0);
  group.reduce(t, /*root=*/0);
  group.all_gather(tensors, t);
  group.all_gather_into_tensor(out, t);
  group.gather(t, tensors, /*root=*/0);
  group.scatter(t, tensors, /*root=*/0);
  group.reduce_scatter(t, tensors);
  group.reduce_scatter_tensor(out, t);
  group.all_to_all(tensors, tensors);
  group.all_to_all_single(out, t);
  group.barrier();
  group.monitored_barrier(std::chrono::seconds(30));
}

void messages(ProcessGroup& group, torch::Tensor t, torch::Tensor u, int left, int right) {
  group.send(t, /*destination=*/1, /*tag=*/7);
  group.recv(t, /*source=*/0, /*tag=*/7);
  auto sent = group.isend(t, /*destination=*/1);
  auto received = group.irecv(u, /*source=*/0);
  auto works =
      group.batch_isend_irecv({{P2POp::Kind::kSend, t, right}, {P2POp::Kind::kRecv, u, left}});
  take(sent, received, works);
}

void groups_and_objects(ProcessGroup& group, int rank, const std::string& text) {
  auto first_two = group.new_group({0, 1});
  auto row = group.split(/*color=*/rank / 4);
  auto texts = group.all_gather_object(text);
  auto same = group.broadcast_object(text, /*root=*/0);
  take(first_two, row, texts, same);
}

void ranks_in_a_grid(ProcessGroup& group) {
  DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 2}});
  ProcessGroup& along = mesh.group("data");
  take(along.size());
}

// --- DistributedDataParallel ---

void wrap(ProcessGroup& group, Net net, const torch::Tensor& x, const torch::Tensor& y) {
  DistributedDataParallel ddp(net, group);
  auto loss = criterion(ddp.forward(x), y);
  loss.backward();
  auto guard = ddp.no_sync();
  ddp.register_comm_hook(bf16_compress_hook(group));
  Net& plain = ddp.module();
  take(plain);
}

void wrap_with_options(ProcessGroup& group, Net net) {
  DdpOptions options;
  options.bucket_cap_mb = 25;
  options.find_unused_parameters = true;
  options.static_graph = true;
  options.broadcast_buffers = false;
  options.sync_batch_norm = true;
  DistributedDataParallel ddp(net, group, options);
}

void end_together(DistributedDataParallel<Net>& ddp, Loader& loader, Optimizer& optimizer) {
  Batch batch;
  Join join(ddp.core(), JoinMode::kWeighted);
  while (join.next(loader.next(batch) ? batch.size : 0)) {
    optimizer.zero_grad();
    join.backward([&] { return criterion(ddp.forward(batch.images), batch.labels); });
    optimizer.step();
  }
}

void share_the_optimizer(ProcessGroup& group, Net net) {
  DistributedDataParallel ddp(net, group, {.parameter_memory = ParameterMemory::kFlat});
  ZeroRedundancyOptimizer optimizer(ddp.core(), *net, AdamOptions{.lr = 1e-3});
}

// --- DataParallel ---

void replicate(Net net, const torch::Tensor& x, const torch::Tensor& y) {
  DataParallel dp(net, {"cuda:0", "cuda:1"});
  auto output = dp.forward(x);
  auto loss = dp.loss(criterion, x, y);
  take(output, loss);
}

// --- Data ---

void datasets(const std::filesystem::path& root, const torch::Tensor& images,
              const torch::Tensor& labels, const std::vector<std::int64_t>& indices) {
  ImageDataset digits = load_mnist(root, Split::kTrain);
  ImageDataset objects = load_cifar10(root, Split::kTest);
  ImageDataset photos = load_image_folder(root);
  ImageDataset tensors = image_dataset(images, labels, /*num_classes=*/10);
  const auto parts = random_split(digits, {0.9, 0.1}, /*seed=*/1);
  ImageDataset some = subset(digits, indices);
  ImageDataset both = concatenate({parts[0], some});
  take(objects, photos, tensors, both);
}

void samplers(const ImageDataset& dataset, int rank, int size, std::vector<double> weights,
              std::vector<std::int64_t> indices) {
  DistributedSampler shares(dataset.size(), {.rank = rank, .world_size = size, .seed = 1});
  EvaluationSampler once(dataset.size(), rank, size);
  RandomSampler shuffled(dataset.size(), {.seed = 1});
  SequentialSampler in_order(dataset.size());
  SubsetRandomSampler part(indices);
  WeightedRandomSampler weighted(weights, {.num_samples = 1000});
  BatchSampler batches(shuffled, {.batch_size = 8, .drop_last = true});
  take(shares, once, in_order, part, weighted, batches);
}

void augmentation(const std::vector<double>& mean, const std::vector<double>& deviation) {
  Augmentation list;
  list.push_back(Pad{4});
  list.push_back(RandomCrop{32});
  list.push_back(RandomResizedCrop{224});
  list.push_back(Resize{.size = 256, .shorter_side = true});
  list.push_back(CenterCrop{224});
  list.push_back(RandomHorizontalFlip{});
  list.push_back(RandomRotation{15});
  list.push_back(ColorJitter{.brightness = 0.4, .contrast = 0.4});
  list.push_back(Normalize{mean, deviation});
  list.push_back(RandomErasing{.probability = 0.5});
}

void load(const ImageDataset& dataset, const DistributedSampler& sampler, const Augmentation& list,
          std::int64_t epochs) {
  Loader loader(dataset, sampler, list, {.batch_size = 64, .threads = 2});
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    loader.set_epoch(epoch);
    for (const Batch& batch : loader) train(batch.images, batch.labels);
  }
}

// A user-defined data set.
struct Sample {
  torch::Tensor words;
  torch::Tensor stars;
};
class Reviews final : public SampleDataset<Sample> {
 public:
  std::int64_t size() const override { return 1000; }
  Sample get(std::int64_t index, const SampleKey&) const override {
    return {.words = torch::arange(8), .stars = torch::tensor(index % 5)};
  }
};
Sample join_samples(const std::vector<Sample>& samples) { return stack_samples(samples); }

void loader_arguments(std::shared_ptr<const Reviews> reviews) {
  LoaderOptions options;
  options.batch_size = 64;
  options.threads = 2;
  options.prefetch = 4;
  options.drop_last = true;
  options.seed = 1;
  options.device = torch::Device(torch::kCUDA, 0);
  options.mix = MixUp{0.2};
  BatchLoader loader(collate(reviews), RandomSampler(reviews->size()), options);
  BatchLoader joined(collate(reviews, join_samples), RandomSampler(reviews->size()), options);
}

void load_by_dali(const std::filesystem::path& root, int rank, int size,
                  const std::vector<double>& mean, const std::vector<double>& deviation) {
  const ImageDataset photos = load_image_folder(root);
  const DistributedSampler shard(photos.size(), {.rank = rank, .world_size = size});
  const Augmentation list = {RandomResizedCrop{224}, RandomHorizontalFlip{},
                             Normalize{mean, deviation}};
  LoaderOptions options{.batch_size = 64, .threads = 4};
  options.engine = LoaderEngineKind::kDali;
  options.device = torch::Device(torch::kCUDA, 0);
  Loader loader(photos, shard, list, options);
  for (const Batch& batch : loader) train(batch.images, batch.labels);
}

// --- Pipelines ---

void pipeline_on_ranks(torch::nn::Sequential net, ProcessGroup& group, torch::Device device,
                       const torch::Tensor& x, const torch::Tensor& y, const std::string& file) {
  const auto stages = split(net, {2, 2});
  const auto stage = stages[static_cast<std::size_t>(group.rank())];
  PipelineOptions options{.micro_batches = 8};
  options.schedule = Schedule::kGPipe;
  options.schedule = Schedule::k1F1B;
  options.schedule = Schedule::kInterleaved;
  options.schedule = Schedule::kZbV;
  std::ifstream csv(file);
  options.table = pipeline::table_of(std::string(std::istreambuf_iterator<char>(csv), {}), "mine");
  options.recompute = true;
  DistributedPipeline pipe({stage}, group, device, options);
  auto loss = pipe.step(criterion, x, y);
  const Tensors outputs = pipe.forward({x});
  clip_grad_norm_(pipe.parameters(), /*max_norm=*/1.0, group);
  take(loss, outputs);
}

void pipeline_on_devices(torch::nn::Sequential net, const torch::Tensor& sample) {
  const Balance best = balance(net, sample, /*stages=*/2);
  const auto stages = split(net, best.sizes);
  Pipeline pipe({stages[0], stages[1]}, {torch::Device("cuda:0"), torch::Device("cuda:1")});
  ModelParallel chain({stages[0], stages[1]}, {torch::Device("cuda:0"), torch::Device("cuda:1")});
}

// --- Optimizers, precision and checkpoints ---

void optimize(Net net, std::int64_t step, std::int64_t steps_per_epoch, std::int64_t steps) {
  Optimizer optimizer(*net, AdamWOptions{.lr = 1e-3});
  optimizer.set_capturable(true);
  const GlobalModes modes({.cudnn_benchmark = true, .matmul_precision = MatmulPrecision::kHigh});
  const ScheduleOptions cosine{.kind = ScheduleKind::kCosine, .warmup_epochs = 1};
  optimizer.scale_lr(learning_rate_factor(cosine, step, steps_per_epoch, steps));
  clip_grad_norm_(net->parameters(), /*max_norm=*/1.0);
  optimizer.step();
  optimizer.zero_grad();
}

void train_in_half(Net net, Optimizer& optimizer, const torch::Tensor& x, const torch::Tensor& y,
                   torch::Device device) {
  GradScaler scaler;
  torch::Tensor loss;
  {
    const AutocastScope autocast(Precision::kBf16, device.type());
    loss = criterion(net->forward(x), y);
  }
  scaler.scale(loss).backward();
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
}

void save_and_load(Net net, Optimizer& optimizer, Loader& loader, const std::filesystem::path& file,
                   std::int64_t epoch) {
  const StateDict state = state_dict(*net);
  load_state_dict(*net, state);
  const auto place = to_settings(loader.position());
  save_checkpoint(file, *net, optimizer.state(), {.epoch = epoch, .settings = place});
  const auto saved = load_checkpoint(file, *net, optimizer.state(), /*recipe=*/"");
  loader.restore(sampler_position(saved.settings));
  save_torch_file("net.pt", state_dict(*net));
  const auto weights = load_state_dict_file("net.pt");
  const auto kept = load_pretrained(*net, weights, "net.pt");
  torch::manual_seed(1);
}

void export_a_net(Net net, const torch::Tensor& x) {
  net->eval();
  export_onnx(net, {x}, "net.onnx");
}

// --- Errors ---

void fail(ProcessGroup& group, const torch::Tensor& t) {
  try {
    group.all_reduce(t);
  } catch (const TimeoutError& error) {
    group.abort(error.what());
  } catch (const CommError& error) {
    group.abort(error.what());
  }
}

}  // namespace from_pytorch
