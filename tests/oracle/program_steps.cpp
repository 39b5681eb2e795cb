// Trains an exported program for a few steps, for program_oracle.py and program_zoo.py.
//
// Usage: program_steps NET.pt2 INPUTS.pt OUTPUT.pt [train|eval] [STEPS]
//                      [clone | STAGES | ddp | pipeline]
//
// INPUTS.pt has the arguments by their names. The loss is the sum of the mean squares of all
// floating-point outputs. OUTPUT.pt gets the outputs and gradients of the first step, and the state
// after STEPS steps of SGD.
//
// The last word says how to train: a clone of the program, or its stages one after another. With
// `ddp`, each of two ranks has a half of the batch, and OUTPUT.pt gets the results of rank 0. With
// `pipeline`, two stages run on two threads, with two micro-batches, and OUTPUT.pt gets the loss
// instead of the outputs.
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

constexpr double kLearningRate = 0.01;
constexpr std::uint64_t kSeed = 7;
constexpr int kParts = 2;  // ranks, or stages and micro-batches of a pipeline

torch::Tensor as_real(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor) : tensor;
}

void collect(const lockstep::ProgramOutput& output, std::vector<torch::Tensor>& tensors) {
  if (output.is_tensor()) tensors.push_back(output.tensor());
  for (std::size_t i = 0; i < output.size(); ++i) collect(output[i], tensors);
}

using Values = std::vector<torch::Tensor>;

// The stages one after another, each with leaves in the place of the outputs of the one before.
class Stages {
 public:
  Stages(const lockstep::Program& net, int count)
      : stages_(lockstep::split(net, count, {.by_time = false})) {}

  Values forward(Values values) {
    inputs_.clear();
    outputs_.clear();
    for (lockstep::Program& stage : stages_) {
      if (!outputs_.empty()) {
        for (torch::Tensor& value : values)
          value = value.detach().set_requires_grad(value.requires_grad());
      }
      inputs_.push_back(values);
      values.clear();
      collect(stage->forward(inputs_.back()), values);
      outputs_.push_back(values);
    }
    return values;
  }

  // After the backward of the last stage.
  void backward() {
    for (std::size_t i = stages_.size() - 1; i > 0; --i) {
      Values roots, gradients;
      for (std::size_t j = 0; j < inputs_[i].size(); ++j) {
        if (!outputs_[i - 1][j].requires_grad() || !inputs_[i][j].grad().defined()) continue;
        roots.push_back(outputs_[i - 1][j]);
        gradients.push_back(inputs_[i][j].grad());
      }
      torch::autograd::backward(roots, gradients);
    }
  }

 private:
  std::vector<lockstep::Program> stages_;
  std::vector<Values> inputs_, outputs_;
};

torch::Tensor loss_of(const std::vector<torch::Tensor>& outputs) {
  torch::Tensor loss;
  for (const torch::Tensor& output : outputs) {
    if (!output.is_floating_point() && !output.is_complex()) continue;
    const torch::Tensor mean = as_real(output).to(torch::kFloat).pow(2).mean();
    loss = loss.defined() ? loss + mean : mean;
  }
  return loss;
}

struct Settings {
  std::string net, inputs, output, mode, how;
  int steps = 3;
};

lockstep::Program load_net(const Settings& settings) {
  at::set_num_threads(1);
  lockstep::Program net(settings.net);
  if (settings.mode == "train") net->train();
  if (settings.mode == "eval") net->eval();
  return net;
}

lockstep::NamedInputs load_inputs(const Settings& settings) {
  lockstep::NamedInputs inputs;
  for (const auto& [name, tensor] : lockstep::load_state_dict_file(settings.inputs)) {
    inputs[name] = tensor;
  }
  return inputs;
}

Values in_order(const lockstep::Program& net, const lockstep::NamedInputs& inputs) {
  Values values;
  for (const auto& input : net->inputs()) values.push_back(inputs.at(input.name).toTensor());
  return values;
}

// Collects what OUTPUT.pt gets.
class Results {
 public:
  void add_outputs(const Values& outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      add("output." + std::to_string(i), outputs[i].detach());
    }
  }
  void add_gradients(const lockstep::Program& net) {
    for (const auto& item : net->named_parameters()) {
      if (item.value().grad().defined()) add("grad." + item.key(), item.value().grad());
    }
  }
  void save(const lockstep::Program& net, const std::string& path) {
    for (const auto& [name, tensor] : lockstep::state_dict(*net)) add("state." + name, tensor);
    lockstep::save_torch_file(path, state_);
  }

 private:
  void add(const std::string& name, const torch::Tensor& tensor) {
    state_.emplace_back(name, as_real(tensor).contiguous().clone());
  }

  lockstep::StateDict state_;
};

void step_sgd(const lockstep::Program& net) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> stepped;  // tied parameters have several names
  for (const torch::Tensor& parameter : net->parameters()) {
    const auto is_same = [&](const auto& other) { return other.is_same(parameter); };
    if (!parameter.grad().defined()) continue;
    if (std::any_of(stepped.begin(), stepped.end(), is_same)) continue;
    stepped.push_back(parameter);
    parameter.add_(parameter.grad(), -kLearningRate);
  }
}

// Calls pass(), which runs forward and backward and returns the outputs, before each step of SGD.
template <class Pass>
Results train(lockstep::Program net, int steps, Pass&& pass) {
  Results results;
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    const Values outputs = pass();
    if (step == 0) results.add_outputs(outputs);
    if (step == 0) results.add_gradients(net);
    step_sgd(net);
  }
  return results;
}

void train_in_one_process(const Settings& settings) {
  lockstep::Program net = load_net(settings);
  std::optional<Stages> stages;
  if (settings.how == "clone") {
    net = lockstep::Program(std::dynamic_pointer_cast<lockstep::ProgramImpl>(net->clone()));
  } else if (!settings.how.empty()) {
    stages.emplace(net, std::atoi(settings.how.c_str()));
  }
  const lockstep::NamedInputs inputs = load_inputs(settings);
  torch::manual_seed(kSeed);
  Results results = train(net, settings.steps, [&] {
    Values outputs;
    if (stages) {
      outputs = stages->forward(in_order(net, inputs));
    } else {
      collect(net->forward(inputs), outputs);
    }
    const torch::Tensor loss = loss_of(outputs);
    if (!loss.defined() || !loss.requires_grad()) return outputs;
    loss.backward();
    if (stages) stages->backward();
    return outputs;
  });
  results.save(net, settings.output);
}

void train_rank(const Settings& settings) {
  auto group = lockstep::init_process_group();
  lockstep::Program net = load_net(settings);
  lockstep::NamedInputs inputs = load_inputs(settings);
  for (auto& [name, value] : inputs) {
    value = value.toTensor().chunk(group.size())[static_cast<std::size_t>(group.rank())];
  }
  // Some models do not use all of their parameters.
  lockstep::DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
  torch::manual_seed(kSeed + static_cast<std::uint64_t>(group.rank()));
  Results results = train(net, settings.steps, [&] {
    Values outputs;
    collect(ddp.forward(inputs), outputs);
    loss_of(outputs).backward();
    return outputs;
  });
  if (group.rank() == 0) results.save(net, settings.output);
  group.barrier();
}

void train_pipeline(const Settings& settings) {
  lockstep::Program net = load_net(settings);
  lockstep::Pipeline pipe(lockstep::pipeline::stage_modules(lockstep::split(net, kParts)),
                          {torch::kCPU, torch::kCPU},
                          {.micro_batches = kParts, .threads_per_worker = 1});
  const Values x = in_order(net, load_inputs(settings));
  const torch::Tensor y = torch::zeros({x.at(0).size(0)});  // the loss has no targets
  const auto criterion = [](const Values& outputs, const torch::Tensor& /*y*/) {
    return loss_of(outputs);
  };
  Results results = train(net, settings.steps, [&] { return Values{pipe.step(criterion, x, y)}; });
  results.save(net, settings.output);
}

int run(int argc, char** argv) {
  if (argc < 4) throw lockstep::ConfigError("usage: program_steps NET.pt2 INPUTS.pt OUTPUT.pt");
  const auto word = [&](int i) { return std::string(i < argc ? argv[i] : ""); };
  const Settings settings{.net = word(1),
                          .inputs = word(2),
                          .output = word(3),
                          .mode = word(4),
                          .how = word(6),
                          .steps = argc > 5 ? std::atoi(argv[5]) : 3};
  if (settings.how == "ddp") {
    const auto result =
        lockstep::launch_ranks({.nproc_per_node = kParts}, [&] { train_rank(settings); });
    if (!result.ok()) std::fprintf(stderr, "error: %s\n", result.message.c_str());
    return result.exit_code;
  }
  settings.how == "pipeline" ? train_pipeline(settings) : train_in_one_process(settings);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::first_line(error).c_str());
    return lockstep::exit_code(error);
  }
}
