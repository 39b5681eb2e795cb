// Trains an exported program for a few steps, for program_oracle.py.
//
// Usage: program_steps NET.pt2 INPUTS.pt OUTPUT.pt [train|eval] [STEPS] [clone]
//
// INPUTS.pt has the arguments by their names. The loss is the sum of the mean squares of all
// floating-point outputs. OUTPUT.pt gets the outputs and gradients of the first step, and the state
// after STEPS steps of SGD.
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
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
  if (argc > 6) {
    net = lockstep::Program(std::dynamic_pointer_cast<lockstep::ProgramImpl>(net->clone()));
  }
  lockstep::NamedInputs inputs;
  for (const auto& [name, tensor] : lockstep::load_state_dict_file(argv[2])) inputs[name] = tensor;

  lockstep::StateDict results;
  torch::manual_seed(7);
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    std::vector<torch::Tensor> outputs;
    collect(net->forward(inputs), outputs);
    const torch::Tensor loss = loss_of(outputs);
    const bool has_gradients = loss.defined() && loss.requires_grad();
    if (has_gradients) loss.backward();
    if (step == 0) {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        results.emplace_back("output." + std::to_string(i),
                             as_real(outputs[i].detach()).contiguous());
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
