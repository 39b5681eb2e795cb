#include <lockstep/parallel/pipeline/tied_copies.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <torch/utils.h>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {
namespace {

// The copies of this process that earlier ranks count. Tests have several ranks in one process, and
// a tensor may belong to several pipelines.
class MarkedCopies {
 public:
  // Never destroyed: a pipeline may live until the program ends.
  static MarkedCopies& instance() {
    static auto* const copies = new MarkedCopies;
    return *copies;
  }

  // They stay marked until all pointers to the result are gone.
  std::shared_ptr<const Tensors> mark(Tensors tensors) {
    const std::scoped_lock lock(mutex_);
    for (const torch::Tensor& tensor : tensors) ++counts_[tensor.unsafeGetTensorImpl()];
    return {new Tensors(std::move(tensors)), [this](const Tensors* marked) {
              unmark(*marked);
              delete marked;
            }};
  }
  bool has(const torch::Tensor& tensor) {
    const std::scoped_lock lock(mutex_);
    return counts_.contains(tensor.unsafeGetTensorImpl());
  }

 private:
  void unmark(const Tensors& tensors) {
    const std::scoped_lock lock(mutex_);
    for (const torch::Tensor& tensor : tensors) {
      const auto found = counts_.find(tensor.unsafeGetTensorImpl());
      if (--found->second == 0) counts_.erase(found);
    }
  }

  std::mutex mutex_;  // guards counts_
  std::unordered_map<const torch::TensorImpl*, int> counts_;
};

}  // namespace

bool is_counted_elsewhere(const torch::Tensor& parameter) {
  return MarkedCopies::instance().has(parameter);
}

TiedCopies::TiedCopies(std::string owner, const CopiesByRanks& copies, ProcessGroup& pipeline)
    : owner_(std::move(owner)) {
  Tensors marked;
  for (const auto& [ranks, tensors] : copies) {
    const bool has_all = static_cast<int>(ranks.size()) == pipeline.size();
    std::optional<ProcessGroup> group =
        has_all ? std::optional<ProcessGroup>(pipeline) : pipeline.new_group(ranks);
    if (!group) continue;  // copies on other ranks only
    if (group->rank() > 0) {
      for (const auto& [name, tensor] : tensors) {
        counted_elsewhere_.insert(name);
        marked.push_back(tensor);
      }
    }
    rows_.push_back({.group = *std::move(group), .copies = tensors});
  }
  marked_ = MarkedCopies::instance().mark(std::move(marked));
}

void TiedCopies::broadcast_values() {
  const torch::NoGradGuard no_grad;
  for (Row& row : rows_) {
    for (const auto& [name, copy] : row.copies) row.group.broadcast(copy.detach(), 0);
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
      throw ConfigError(lockstep::str(owner_, ": the gradient of '", name,
                                      "', which stages on several ranks share, is sparse; set "
                                      "sparse = false in the embedding"));
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

void TiedCopies::begin_step() {
  for (Row& row : rows_) {
    row.before.clear();
    for (const auto& [name, copy] : row.copies) {
      row.before.push_back(std::exchange(copy.mutable_grad(), torch::Tensor()));
    }
  }
}

// Gradients that were set aside keep their memory, which may be a part of a larger tensor.
void TiedCopies::end_step() {
  add_up();
  const torch::NoGradGuard no_grad;
  for (Row& row : rows_) {
    for (std::size_t i = 0; i < row.copies.size(); ++i) {
      torch::Tensor& gradient = row.copies[i].second.mutable_grad();
      torch::Tensor before = std::exchange(row.before[i], torch::Tensor());
      if (!before.defined()) continue;
      if (gradient.defined()) before.add_(gradient);
      gradient = before;
    }
  }
}

void TiedCopies::abort(const std::string& reason) {
  for (Row& row : rows_) row.group.abort(reason);
}

}  // namespace lockstep::pipeline
