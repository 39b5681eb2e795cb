// Trains an exported program for a few steps, for program_oracle.py.
//
// Usage: program_steps NET.pt2 INPUTS.pt OUTPUT.pt [train|eval] [STEPS] [clone | STAGES]
//
// INPUTS.pt has the arguments by their names. The loss is the sum of the mean squares of all
// floating-point outputs. OUTPUT.pt gets the outputs and gradients of the first step, and the state
// after STEPS steps of SGD.
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

constexpr double kLearningRate = 0.01;

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

void run(int argc, char** argv) {
  if (argc < 4) throw lockstep::ConfigError("usage: program_steps NET.pt2 INPUTS.pt OUTPUT.pt");
  at::set_num_threads(1);
  lockstep::Program net(argv[1]);
  const std::string mode = argc > 4 ? argv[4] : "";
  const int steps = argc > 5 ? std::atoi(argv[5]) : 3;
  if (mode == "train") net->train();
  if (mode == "eval") net->eval();
  const std::string how = argc > 6 ? argv[6] : "";
  std::optional<Stages> stages;
  if (how == "clone") {
    net = lockstep::Program(std::dynamic_pointer_cast<lockstep::ProgramImpl>(net->clone()));
  }
  if (!how.empty() && how != "clone") stages.emplace(net, std::atoi(how.c_str()));
  lockstep::NamedInputs inputs;
  for (const auto& [name, tensor] : lockstep::load_state_dict_file(argv[2])) inputs[name] = tensor;

  lockstep::StateDict results;
  torch::manual_seed(7);
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    std::vector<torch::Tensor> outputs;
    if (stages) {
      Values values;
      for (const auto& input : net->inputs()) values.push_back(inputs.at(input.name).toTensor());
      outputs = stages->forward(values);
    } else {
      collect(net->forward(inputs), outputs);
    }
    const torch::Tensor loss = loss_of(outputs);
    const bool has_gradients = loss.defined() && loss.requires_grad();
    if (has_gradients) loss.backward();
    if (has_gradients && stages) stages->backward();
    if (step == 0) {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        results.emplace_back("output." + std::to_string(i),
                             as_real(outputs[i].detach()).contiguous().clone());
      }
    }
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> stepped;
    for (const auto& item : net->named_parameters()) {
      const torch::Tensor& parameter = item.value();
      if (!parameter.grad().defined()) continue;
      if (step == 0) {
        results.emplace_back("grad." + item.key(), as_real(parameter.grad()).clone());
      }
      const bool is_tied = std::any_of(stepped.begin(), stepped.end(),
                                       [&](const auto& other) { return other.is_same(parameter); });
      if (is_tied) continue;
      stepped.push_back(parameter);
      parameter.add_(parameter.grad(), -kLearningRate);
    }
  }
  for (const auto& [name, tensor] : lockstep::state_dict(*net)) {
    results.emplace_back("state." + name, as_real(tensor).clone());
  }
  lockstep::save_torch_file(argv[3], results);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::first_line(error).c_str());
    return lockstep::exit_code(error);
  }
}
