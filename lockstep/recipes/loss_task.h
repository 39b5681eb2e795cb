// Trains a program that computes its own loss.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

/// The output named "loss", or else the first tensor.
inline const torch::Tensor& loss_of(const ProgramOutput& output) {
  return output.contains("loss") ? output["loss"].tensor() : output.first_tensor();
}

/// For strategies with copies or parts of the module, whose outputs are concatenated, the output
/// repeats the copy's loss once per sample. Its mean over all samples therefore weighs
/// each copy by its samples.
template <BatchOfTensors B>
class LossTask final : public BatchTask<B>, public detail::OutputTaskBase {
 public:
  /// The inputs of the program, in their order.
  using Inputs = std::function<Tensors(const B& batch)>;

  LossTask(Program net, Inputs inputs) : net_(std::move(net)), inputs_(std::move(inputs)) {}

  torch::nn::Module& module() override { return *net_; }
  torch::Tensor training_step(const B& batch) override {
    return loss_of(net_->forward(inputs_(batch)));
  }
  void evaluation_step(const B& batch, Metrics& metrics) override {
    metrics.add("loss", training_step(batch), this->batch_size(batch));
  }

  detail::OutputBatch output_batch(const LoadedBatch& loaded) const override {
    Tensors inputs = inputs_(loaded.batch<B>());
    const torch::Tensor first = inputs.at(0);
    return {.inputs = std::move(inputs), .targets = first, .size = first.size(0)};
  }
  torch::Tensor output(torch::nn::Module& module, const Tensors& inputs) const override {
    const torch::Tensor loss = loss_of(dynamic_cast<ProgramImpl&>(module).forward(inputs));
    return loss.expand({inputs.at(0).size(0)});
  }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor&) const override {
    return output.mean();
  }
  void evaluate(const torch::Tensor& output, const torch::Tensor&,
                Metrics& metrics) const override {
    metrics.add("loss", output.mean(), output.size(0));
  }
  /// A tensor with an element for each sample goes through the stages, so that the last one knows
  /// their number.
  std::vector<pipeline::StageModule> stages(int count) const override {
    std::vector<pipeline::StageModule> stages;
    for (const pipeline::StageModule& part : cut_program(net_, count, loss_of)) {
      const bool is_first = stages.empty();
      const bool is_last = stages.size() + 1 == static_cast<std::size_t>(count);
      stages.emplace_back(
          part.module().shared_from_this(), [part, is_first, is_last](const Tensors& inputs) {
            Tensors own = inputs;
            torch::Tensor samples;
            if (is_first) {
              samples = torch::zeros({own.at(0).size(0)}, own[0].options().dtype(torch::kUInt8));
            } else {
              samples = own.back();
              own.pop_back();
            }
            Tensors outputs = part.forward(own);
            if (is_last) return Tensors{outputs.at(0).expand({samples.size(0)})};
            outputs.push_back(samples);
            return outputs;
          });
    }
    return stages;
  }

 private:
  Program net_;
  Inputs inputs_;
};

}  // namespace lockstep::recipes
