// Lockstep's side of the comparison with Python's DistributedDataParallel. ddp_oracle.py describes
// the work and the exchanged files; compare.py runs both sides.
//
// Usage: ddp_steps --model NAME --init FILE --data FILE --steps N --batch B --out FILE
//                  [--nproc-per-node 2] [--engine lockstep|c10d] [--backend auto] [--double]
//
// --engine c10d uses LibTorch's own reducer over Gloo instead of ours.
#include <CLI/CLI.hpp>
#include <cstring>
#include <iostream>

#include <torch/optim/sgd.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <tests/oracle/c10d_ddp.h>
#include <tests/oracle/oracle_models.h>

namespace {

using namespace lockstep;

struct Options {
  std::string model = "mnist";
  std::string init, data, out;
  std::int64_t steps = 1;
  std::int64_t batch = 128;
  int nproc_per_node = 2;
  std::string engine = "lockstep";
  std::string backend = "auto";
  bool use_double = false;
};

// Gradients are compared after the first steps only. Later ones show nothing that the weights do
// not.
constexpr std::int64_t kGradientSteps = 5;

torch::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "F32") return torch::kFloat32;
  if (dtype == "I64") return torch::kInt64;
  if (dtype == "F64") return torch::kFloat64;
  throw ConfigError("ddp_steps reads F32, F64 and I64 tensors, not " + dtype);
}

StateDict read_tensors(const std::string& path) {
  const MappedFile file(path);
  StateDict tensors;
  for (const auto& [name, view] : parse_safetensors(file.bytes(), path).tensors) {
    auto tensor = torch::empty(view.shape, scalar_type(view.dtype));
    std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
    tensors.emplace_back(name, tensor);
  }
  return tensors;
}

void write_tensors(const std::string& path, const StateDict& tensors) {
  std::vector<torch::Tensor> kept;
  TensorViews views;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().contiguous());
    const auto* bytes = static_cast<const std::byte*>(kept.back().data_ptr());
    const torch::ScalarType type = tensor.scalar_type();
    views[name] = {type == torch::kInt64     ? "I64"
                   : type == torch::kFloat64 ? "F64"
                                             : "F32",
                   tensor.sizes().vec(),
                   {bytes, kept.back().nbytes()}};
  }
  write_safetensors(path, views);
}

torch::Tensor find(const StateDict& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  throw DataError("no tensor '" + name + "' in the data file");
}

// The forward of one training step, for either reducer: calls `run` between the reducer's own
// actions before and after the forward.
using Forward = std::function<torch::Tensor(const std::function<torch::Tensor()>& run)>;

Forward wrap(const oracle::Model& model, const Options& options, const ProcessGroup& group) {
  if (options.engine == "c10d") {
    auto ddp = std::make_shared<oracle::C10dDdp>(model, options.out + ".store", group.rank(),
                                                 group.size());
    return [ddp](const auto& run) { return ddp->forward(run); };
  }
  auto ddp = std::make_shared<DdpCore>(
      *model.module, group, DdpOptions{.find_unused_parameters = model.find_unused_parameters});
  return [ddp](const auto& run) {
    ddp->before_forward();
    return run();
  };
}

void train(const oracle::Model& model, const Options& options) {
  auto group =
      init_process_group({.backend = options.backend, .timeout = std::chrono::seconds(60)});
  // Only rank 0 loads the weights. DDP must send them to the others.
  if (group.rank() == 0) load_state_dict(*model.module, read_tensors(options.init));
  model.module->train();
  const Forward forward = wrap(model, options, group);
  torch::optim::SGD optimizer(oracle::distinct(model.module->parameters()),
                              torch::optim::SGDOptions(0.01).momentum(model.momentum));

  const auto data = read_tensors(options.data);
  const auto inputs = find(data, "images"), labels = find(data, "labels");
  const DistributedSampler sampler(inputs.size(0), {.rank = group.rank(),
                                                    .world_size = group.size(),
                                                    .shuffle = true,
                                                    .seed = 0,
                                                    .drop_last = true});
  const std::int64_t batch = options.batch / group.size();
  auto losses = torch::zeros({group.size(), options.steps});
  StateDict result;
  std::int64_t epoch = 0;
  torch::Tensor order = torch::tensor(sampler.indices(epoch));
  for (std::int64_t step = 0, next = 0; step < options.steps; ++step, next += batch) {
    if (next + batch > order.numel()) {
      order = torch::tensor(sampler.indices(++epoch));
      next = 0;
    }
    const auto chosen = order.narrow(0, next, batch);
    optimizer.zero_grad();
    const auto output =
        forward([&] { return model.forward(inputs.index_select(0, chosen), step, group.rank()); });
    const auto loss =
        torch::nll_loss(torch::log_softmax(output, 1), labels.index_select(0, chosen));
    loss.backward();
    for (const auto& item : model.module->named_parameters()) {
      if (step >= kGradientSteps || !item.value().grad().defined()) continue;
      result.emplace_back(lockstep::str("gradient.", step, ".", item.key()),
                          item.value().grad().to_dense().clone());
    }
    optimizer.step();
    losses[group.rank()][step] = loss.detach();
  }
  group.all_reduce(losses);
  if (group.rank() == 0) {
    result.emplace_back("losses", losses);
    for (const auto& [name, tensor] : state_dict(*model.module))
      result.emplace_back("model." + name, tensor);
    write_tensors(options.out, result);
  }
  group.barrier();
}

void run_rank(const Options& options) {
  const auto worker = worker_environment().value_or(WorkerEnvironment{});
  torch::set_num_threads(launch::prepare_rank(worker, 1));
  if (options.use_double) {
    torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kFloat64));
  }
  train(oracle::make_model(options.model), options);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a few steps for the comparison with Python");
  app.add_option("--model", options.model);
  app.add_option("--init", options.init)->required();
  app.add_option("--data", options.data)->required();
  app.add_option("--out", options.out)->required();
  app.add_option("--steps", options.steps);
  app.add_option("--batch", options.batch);
  app.add_option("--nproc-per-node", options.nproc_per_node);
  app.add_option("--engine", options.engine)->check(CLI::IsMember({"lockstep", "c10d"}));
  app.add_option("--backend", options.backend);
  app.add_flag("--double", options.use_double);
  CLI11_PARSE(app, argc, argv);
  try {
    const auto result =
        launch_ranks({.nproc_per_node = options.nproc_per_node}, [&] { run_rank(options); });
    if (!result.ok()) std::cerr << "error: " << result.message << '\n';
    return result.exit_code;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return exit_code(error);
  }
}
