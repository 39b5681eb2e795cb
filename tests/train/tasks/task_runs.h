// Runs of tasks with batches of their own: what the tests of tasks and of optimizers share.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/trainer.h>
#include <tests/support/groups.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {

/// The rows of the tensors of some samples, a data set for any batch.
template <BatchOfTensors B>
class RowsOf final : public BatchDataset<B> {
 public:
  RowsOf(B all, std::int64_t size) : all_(std::move(all)), size_(size) {}
  std::int64_t size() const override { return size_; }
  void get(const BatchRequest& request, B& batch) const override {
    const torch::Tensor rows = torch::tensor(
        std::vector<std::int64_t>(request.indices.begin(), request.indices.end()), torch::kInt64);
    batch = all_;
    for_each_tensor(batch, [&](torch::Tensor& tensor) { tensor = tensor.index_select(0, rows); });
  }

 private:
  const B all_;
  const std::int64_t size_;
};

/// A loader of this rank's share of `rows`, in an order that any number of ranks divides.
template <BatchOfTensors B>
BatchLoader<B> loader_of_rows(const std::shared_ptr<const RowsOf<B>>& rows,
                              std::int64_t global_batch,
                              const ProcessGroup& group = group_of_one()) {
  return BatchLoader<B>(
      rows, DistributedSampler(rows->size(), {.rank = group.rank(), .world_size = group.size()}),
      {.batch_size = global_batch / group.size()});
}

inline StateDict copy_of_state(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& [name, tensor] : state_dict(module)) state.emplace_back(name, tensor.clone());
  return state;
}

/// Gives every parameter values that depend on its shape and place alone. Ranks that are threads of
/// one process share the random generator, from which they would get different ones.
inline void set_fixed_weights(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  double phase = 0.3;
  for (torch::Tensor& parameter : module.parameters()) {
    const torch::Tensor places = torch::arange(parameter.numel(), torch::kFloat32);
    const double inputs = static_cast<double>(parameter.numel() / parameter.size(0));
    parameter.copy_(((places * 0.7 + phase).sin() / std::sqrt(inputs + 1)).view_as(parameter));
    phase += 1;
  }
}

/// Expects equal values up to rounding.
inline void expect_near_state(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i].second, b[i].second, 1e-4, 1e-6)) << a[i].first;
  }
}

/// Rank 0's result of `train`, which runs on each of `size` ranks and returns a state; all ranks
/// must return the same bits.
inline StateDict state_of_ranks(int size, const std::function<StateDict(ProcessGroup)>& train) {
  std::vector<StateDict> states(static_cast<std::size_t>(size));
  const auto errors = testing_support::run_group(size, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    const int rank = group.rank();
    states[static_cast<std::size_t>(rank)] = train(std::move(group));
  });
  EXPECT_EQ(errors, testing_support::no_errors(size));
  for (const StateDict& state : states) expect_equal_bits(state, states.front());
  return states.front();
}

}  // namespace lockstep::train
