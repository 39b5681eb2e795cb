#include <lockstep/train/strategies/tied_copies.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <torch/utils.h>

#include <lockstep/core/error.h>

namespace lockstep::train {
namespace {

using CopiesByWorkers = std::map<std::vector<int>, NamedTensors>;

// The trainable parameters that stages of several workers have, by the ascending list of these
// workers.
CopiesByWorkers copies_by_workers(const std::vector<NamedStage>& stages,
                                  const std::vector<int>& worker_of) {
  std::map<std::string, std::set<int>> workers;
  NamedTensors parameters;  // each once
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [name, tensor] : stages[s].trainable()) {
      std::set<int>& those_of_name = workers[name];
      if (those_of_name.empty()) parameters.emplace_back(name, tensor);
      those_of_name.insert(worker_of[s]);
    }
  }
  CopiesByWorkers copies;
  for (const auto& [name, tensor] : parameters) {
    const std::set<int>& those_of_name = workers.at(name);
    if (those_of_name.size() < 2) continue;
    copies[std::vector<int>(those_of_name.begin(), those_of_name.end())].emplace_back(name, tensor);
  }
  return copies;
}

}  // namespace

TiedCopies::TiedCopies(std::string strategy, const std::vector<NamedStage>& stages,
                       const std::vector<int>& worker_of, ProcessGroup& pipeline)
    : strategy_(std::move(strategy)) {
  for (auto& [workers, copies] : copies_by_workers(stages, worker_of)) {
    const bool has_all = static_cast<int>(workers.size()) == pipeline.size();
    std::optional<ProcessGroup> group =
        has_all ? std::optional<ProcessGroup>(pipeline) : pipeline.new_group(workers);
    if (!group) continue;  // copies on other ranks only
    if (group->rank() > 0) {
      for (const auto& [name, tensor] : copies) counted_elsewhere_.insert(name);
    }
    rows_.push_back({.group = *std::move(group), .copies = copies});
  }
}

void TiedCopies::fill_in() {
  const torch::NoGradGuard no_grad;
  for (Row& row : rows_) {
    const Gradients gradients = gradients_of(row);
    row.group.all_reduce(gradients.counts);
    set_missing(row, gradients);
  }
}

// The flags that say which copies have a gradient are reduced together with the gradients.
void TiedCopies::add_up() {
  const torch::NoGradGuard no_grad;
  for (Row& row : rows_) {
    const Gradients gradients = gradients_of(row);
    Tensors reduced = gradients.tensors;
    reduced.push_back(gradients.counts);
    row.group.all_reduce_coalesced(reduced);
    set_missing(row, gradients);
  }
}

TiedCopies::Gradients TiedCopies::gradients_of(const Row& row) const {
  Gradients gradients;
  for (const auto& [name, copy] : row.copies) {
    torch::Tensor& gradient = copy.mutable_grad();
    const bool has_gradient = gradient.defined();
    if (has_gradient && gradient.is_sparse()) {
      throw ConfigError(lockstep::str("strategy ", strategy_, ": the gradient of '", name,
                                      "', which stages on several ranks share, is sparse; make the "
                                      "embedding dense"));
    }
    // A group reduces memory, which a lazy conjugate or negative only refers to.
    if (has_gradient) gradient = gradient.resolve_conj().resolve_neg();
    gradients.tensors.push_back(has_gradient ? gradient : torch::zeros_like(copy));
    gradients.present.push_back(has_gradient ? 1.0F : 0.0F);
  }
  gradients.counts =
      torch::tensor(gradients.present, torch::kFloat32).to(gradients.tensors.front().device());
  return gradients;
}

// Sets missing gradients of the copies in `row` if the reduced counts show that another copy has
// one. The counts are read only if a gradient is missing, because reading them from a GPU waits for
// the device.
void TiedCopies::set_missing(const Row& row, const Gradients& gradients) {
  const std::vector<float>& present = gradients.present;
  if (std::find(present.begin(), present.end(), 0.0F) == present.end()) return;
  const torch::Tensor counts = gradients.counts.cpu();
  for (std::size_t i = 0; i < row.copies.size(); ++i) {
    const auto copies = counts[static_cast<std::int64_t>(i)].item<float>();
    if (present[i] == 0.0F && copies > 0.0F) {
      row.copies[i].second.mutable_grad() = gradients.tensors[i];
    }
  }
}

void TiedCopies::abort(const std::string& reason) {
  for (Row& row : rows_) row.group.abort(reason);
}

}  // namespace lockstep::train
