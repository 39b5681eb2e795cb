#include <lockstep/train/strategies/stage_optimizers.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <torch/utils.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/train/strategies/named_exchange.h>

namespace lockstep::train {
namespace {

NamedTensors state_of(const NamedTensors& all, const std::set<std::string>& parameters) {
  NamedTensors some;
  for (const auto& [name, tensor] : all) {
    if (parameters.contains(parameter_of_state(name))) some.emplace_back(name, tensor);
  }
  return some;
}

std::set<std::string> names_in_lines(const std::string& lines) {
  std::set<std::string> names;
  std::size_t begin = 0;
  for (std::size_t end = lines.find('\n'); end != std::string::npos;
       begin = end + 1, end = lines.find('\n', begin)) {
    names.insert(lines.substr(begin, end - begin));
  }
  return names;
}

// The tensors of `own` that are also in `wanted`.
Tensors wanted_among(const NamedTensors& own, const Tensors& wanted) {
  std::unordered_set<const torch::TensorImpl*> all;
  for (const torch::Tensor& tensor : wanted) all.insert(tensor.unsafeGetTensorImpl());
  Tensors found;
  for (const auto& [name, tensor] : own) {
    if (all.contains(tensor.unsafeGetTensorImpl())) found.push_back(tensor);
  }
  return found;
}

void append_gradients(Tensors more, Tensors& all) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

std::map<std::string, Tensors> by_device(const Tensors& tensors) {
  std::map<std::string, Tensors> groups;
  for (const torch::Tensor& tensor : tensors) groups[tensor.device().str()].push_back(tensor);
  return groups;
}

class StageOptimizers final : public RunOptimizer {
 public:
  StageOptimizers(std::vector<StageOptimizer> stages, const OptimizerGroups& groups,
                  std::optional<StageRanks> ranks, ForEachStage for_each)
      : stages_(std::move(stages)),
        ranks_(std::move(ranks)),
        for_each_(std::move(for_each)),
        lr_(groups.lrs().front()),
        first_lr_(lr_) {
    for (const StageOptimizer& stage : stages_) {
      std::set<std::string>& names = names_.emplace_back();
      for (const auto& [name, tensor] : stage.parameters) {
        names.insert(name);
        if (ranks_ && ranks_->counted_elsewhere.contains(name)) continue;
        counted_names_.insert(name);
        counted_.push_back(tensor);
      }
    }
    if (!ranks_ || !ranks_->is_first_replica) return;
    std::string lines;
    for (const auto& names : names_) {
      for (const std::string& name : names) lines += name + '\n';
    }
    for (const std::string& each : ranks_->pipeline.gather_object(lines, 0)) {
      names_of_ranks_.push_back(names_in_lines(each));
    }
  }

  void step() override {
    ending_all([&] { for_each([](RunOptimizer& stage) { stage.step(); }); });
  }
  void zero_grad() override {
    for_each([](RunOptimizer& stage) { stage.zero_grad(); });
  }
  Tensors gradients() override {
    return ending_all([&] {
      Tensors all;
      for (const StageOptimizer& stage : stages_) {
        append_gradients(stage.optimizer->gradients(), all);
      }
      return all;
    });
  }
  Tensors gradients_of(const Tensors& parameters) override {
    return ending_all([&] {
      Tensors all;
      for (const StageOptimizer& stage : stages_) {
        const Tensors own = wanted_among(stage.parameters, parameters);
        append_gradients(stage.optimizer->gradients_of(own), all);
      }
      return all;
    });
  }

  void clip_grad_norm(double max_norm) override {
    ending_all([&] { clip_by_common_norm(max_norm); });
  }

  void agree_through(GradScaler& scaler) override {
    if (!ranks_) return;
    scaler.reduce_found_inf_with([this](torch::Tensor& found) {
      const SecondsScope scope(communication_seconds_);
      ranks_->all.all_reduce(found, ReduceOp::kMax);
    });
  }

  double communication_seconds() const override {
    double seconds = communication_seconds_;
    for (const StageOptimizer& stage : stages_) seconds += stage.optimizer->communication_seconds();
    return seconds;
  }
  double lr() const override { return lr_; }
  void set_lr(double lr) override {
    lr_ = lr;
    for (const StageOptimizer& stage : stages_) stage.optimizer->set_lr(lr);
  }
  void scale_lrs(const std::vector<double>& factors) override {
    lr_ = first_lr_ * factors.at(0);
    for (const StageOptimizer& stage : stages_) stage.optimizer->scale_lrs(factors);
  }
  void set_momentum(double momentum) override {
    for (const StageOptimizer& stage : stages_) stage.optimizer->set_momentum(momentum);
  }

  NamedTensors state() override {
    return ending_all([&] { return whole_state(); });
  }

  void load_state(const NamedTensors& state) override {
    ending_all([&] {
      const NamedTensors own = own_part_of(state);
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        stages_[s].optimizer->load_state(state_of(own, names_[s]));
      }
    });
  }

 private:
  template <class Function>
  void for_each(const Function& function) {
    if (for_each_) return for_each_([&](std::size_t s) { function(*stages_[s].optimizer); });
    for (const StageOptimizer& stage : stages_) function(*stage.optimizer);
  }

  // Other ranks may wait for this one in groups that only the strategy knows.
  template <class Function>
  auto ending_all(const Function& function) -> std::invoke_result_t<const Function&> {
    if (!ranks_) return function();
    return end_all_if_it_throws(ranks_->end_all, function);
  }

  void clip_by_common_norm(double max_norm) {
    const torch::NoGradGuard no_grad;
    const Tensors all = gradients();
    const bool counts_all = !ranks_ || ranks_->counted_elsewhere.empty();
    const auto groups = by_device(all);
    const auto counted = by_device(counts_all ? all : gradients_of(counted_));
    const torch::Device device = ranks_ ? ranks_->device : torch::Device(torch::kCPU);
    torch::Tensor squares = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kFloat64));
    for (const auto& [name, tensors] : counted) {
      squares += get_total_norm(tensors).to(device, torch::kFloat64).square();
    }
    if (ranks_) {
      const SecondsScope scope(communication_seconds_);
      (ranks_->shards ? ranks_->all : ranks_->pipeline).all_reduce(squares);
    }
    const torch::Tensor norm = squares.sqrt().to(torch::kFloat32);
    for (const auto& [name, tensors] : groups) {
      clip_grads_with_norm_(tensors, max_norm, norm.to(tensors.front().device()));
    }
  }

  NamedTensors whole_state() {
    NamedTensors own;
    for (const StageOptimizer& stage : stages_) {
      NamedTensors state = stage.optimizer->state();
      std::move(state.begin(), state.end(), std::back_inserter(own));
    }
    if (!ranks_) return own;
    if (!ranks_->is_first_replica) return {};
    return gather_named(state_of(own, counted_names_), ranks_->pipeline, ranks_->device);
  }

  // The part of rank 0's state that belongs to this rank. Other replicas get theirs from the first
  // one, stage by stage.
  NamedTensors own_part_of(const NamedTensors& state) {
    if (!ranks_) return state;
    if (!ranks_->is_first_replica) return {};
    std::vector<NamedTensors> of_ranks;
    for (const auto& names : names_of_ranks_) of_ranks.push_back(state_of(state, names));
    return scatter_named(of_ranks, ranks_->pipeline, ranks_->device);
  }

  std::vector<StageOptimizer> stages_;
  std::vector<std::set<std::string>> names_;  // names of each stage's parameters
  std::set<std::string> counted_names_;       // names that no other rank counts
  Tensors counted_;                           // these parameters
  std::optional<StageRanks> ranks_;
  ForEachStage for_each_;
  std::vector<std::set<std::string>>
      names_of_ranks_;  // names on the pipeline's ranks; on its first rank only
  double lr_;           // the rate of the first group
  const double first_lr_;
  double communication_seconds_ = 0;  // without those of stages_
};

}  // namespace

std::string parameter_of_state(const std::string& name) { return name.substr(name.find('.') + 1); }

std::unique_ptr<RunOptimizer> make_stage_optimizers(std::vector<StageOptimizer> stages,
                                                    const OptimizerGroups& groups,
                                                    std::optional<StageRanks> ranks,
                                                    ForEachStage for_each) {
  return std::make_unique<StageOptimizers>(std::move(stages), groups, std::move(ranks),
                                           std::move(for_each));
}

std::vector<NamedTensors> shares_of(const NamedTensors& parameters, std::size_t count) {
  double all = 0;
  for (const auto& [name, tensor] : parameters) all += static_cast<double>(tensor.nbytes());
  std::vector<NamedTensors> shares;
  double before = 0;  // bytes of the parameters before this one
  std::size_t last = 0;
  for (const auto& parameter : parameters) {
    // The share that contains the middle of the parameter's bytes.
    const double bytes = static_cast<double>(parameter.second.nbytes());
    const double middle = before + bytes / 2;
    const auto share =
        std::min(static_cast<std::size_t>(all > 0 ? middle / all * static_cast<double>(count) : 0),
                 count - 1);
    if (shares.empty() || share != last) shares.emplace_back();
    shares.back().push_back(parameter);
    last = share;
    before += bytes;
  }
  return shares;
}

}  // namespace lockstep::train
