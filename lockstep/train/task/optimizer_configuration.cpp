#include <lockstep/train/task/optimizer_configuration.h>

#include <cstring>
#include <sstream>
#include <variant>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

constexpr const char* kArchive = "archive";

class AdaptedOptimizer final : public OwnOptimizer {
 public:
  explicit AdaptedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {
    for (const auto& group : optimizer_->param_groups()) {
      initial_lrs_.push_back(group.options().get_lr());
    }
  }

  void step() override { optimizer_->step(); }
  double lr() const override { return optimizer_->param_groups().front().options().get_lr(); }
  void scale_lr(double factor) override {
    auto& groups = optimizer_->param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      groups[g].options().set_lr(initial_lrs_[g] * factor);
    }
  }

  NamedTensors state() override {
    torch::serialize::OutputArchive archive;
    optimizer_->save(archive);
    std::ostringstream out;
    archive.save_to(out);
    const std::string bytes = out.str();
    torch::Tensor copy = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
    std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
    return {{kArchive, copy}};
  }

  void load_state(const NamedTensors& state) override {
    if (state.empty()) return;
    const torch::Tensor bytes = state.front().second.cpu().contiguous();
    std::istringstream in(std::string(static_cast<const char*>(bytes.const_data_ptr()),
                                      static_cast<std::size_t>(bytes.numel())));
    torch::serialize::InputArchive archive;
    archive.load_from(in, optimizer_->parameters().front().device());
    optimizer_->load(archive);
    scale_lr(1);  // the archive has the rates of its last step
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> initial_lrs_;
};

OptimizerOptions without_decay(OptimizerOptions options) {
  std::visit([](auto& each) { each.weight_decay = 0; }, options);
  return options;
}

}  // namespace

std::vector<ParameterGroup> no_decay_on_norms_and_biases(const torch::nn::Module& module,
                                                         const OptimizerOptions& options) {
  return group_parameters(module, [&](const std::string&, const torch::Tensor& parameter) {
    return parameter.dim() < 2 ? without_decay(options) : options;
  });
}

NamedTensors parameters_with_prefix(const torch::nn::Module& module, const std::string& prefix) {
  NamedTensors parameters = trainable_parameters(module);
  std::erase_if(parameters, [&](const auto& entry) { return !entry.first.starts_with(prefix); });
  return parameters;
}

ConfiguredOptimizer own_optimizer(NamedTensors parameters, MakeOwnOptimizer make) {
  if (!make) throw ConfigError("own_optimizer: got no function that makes the optimizer");
  return {.groups = {{.parameters = std::move(parameters), .options = {}}},
          .make = std::move(make)};
}

std::unique_ptr<OwnOptimizer> adapted(std::unique_ptr<torch::optim::Optimizer> optimizer) {
  if (!optimizer) throw ConfigError("adapted: got no optimizer");
  return std::make_unique<AdaptedOptimizer>(std::move(optimizer));
}

}  // namespace lockstep
