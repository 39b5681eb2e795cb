// A user-defined data set that makes single samples, and the collation of samples into batches.
//
//   struct Review {
//     torch::Tensor words;  // int64 [length]
//     torch::Tensor stars;  // int64 []
//   };
//   class Reviews final : public SampleDataset<Review> {
//    public:
//     std::int64_t size() const override { return count_; }
//     Review get(std::int64_t index, const SampleKey&) const override { ... }
//   };
//   BatchLoader loader(collate(std::make_shared<const Reviews>(), pad_words), RandomSampler(count),
//   {...});
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/export.h>
#include <lockstep/data/augment/sample_key.h>
#include <lockstep/data/datasets/batch_dataset.h>
#include <lockstep/data/datasets/batch_structure.h>

namespace lockstep {

/// Like torch.utils.data.Dataset: maps an index to a sample. Implementations must be immutable: the
/// loader calls get() from several of its threads at once.
template <class S>
class SampleDataset {
 public:
  using SampleType = S;

  virtual ~SampleDataset() = default;
  virtual std::int64_t size() const = 0;
  /// The sample at `index`, from 0 to size() - 1. Random choices that come from `key`
  /// (key.stream(), or generator_of(key) for LibTorch operators) are the same for any number of
  /// threads and ranks, and after a resume. If a sampler draws the sample again in the same epoch,
  /// they differ.
  virtual S get(std::int64_t index, const SampleKey& key) const = 0;
};

/// A random generator on the CPU for operators such as torch::rand, seeded from the key.
LOCKSTEP_API at::Generator generator_of(const SampleKey& key);

/// Joins samples into a batch of the same structure, as PyTorch's default_collate does for tensors:
/// every tensor of the batch is the stack of the samples' tensors in a new first dimension. Members
/// that are not tensors are copied from the first sample; if that is not enough, collate with a
/// function of your own. Throws a ConfigError if the samples have different numbers of tensors, and
/// a c10::Error if shapes differ.
template <BatchOfTensors S>
S stack_samples(const std::vector<S>& samples) {
  S batch = samples.at(0);
  std::vector<std::vector<torch::Tensor>> columns;
  for (const S& sample : samples) {
    std::size_t column = 0;
    for_each_tensor(sample, [&](const torch::Tensor& tensor) {
      if (column == columns.size() && &sample == samples.data()) columns.emplace_back();
      if (column < columns.size()) columns[column].push_back(tensor);
      ++column;
    });
    if (column == columns.size()) continue;
    throw ConfigError(str("stack_samples: a sample has ", column,
                          " tensors, the first one of its batch has ", columns.size(),
                          "; collate with a function of your own"));
  }
  std::size_t next = 0;
  for_each_tensor(batch, [&](torch::Tensor& tensor) { tensor = torch::stack(columns[next++]); });
  return batch;
}

/// Makes batches from single samples: `join` receives the samples of a batch, in the batch's order,
/// and returns the batch. It runs on the loader's threads, several calls at once.
template <class S, std::invocable<std::vector<S>> Join>
class CollatedDataset final
    : public BatchDataset<std::invoke_result_t<const Join&, std::vector<S>>> {
 public:
  using BatchType = std::invoke_result_t<const Join&, std::vector<S>>;

  CollatedDataset(std::shared_ptr<const SampleDataset<S>> samples, Join join)
      : samples_(std::move(samples)), join_(std::move(join)) {
    if (!samples_) throw ConfigError("collate: got no data set");
  }

  std::int64_t size() const override { return samples_->size(); }
  void get(const BatchRequest& request, BatchType& batch) const override {
    std::vector<S> samples;
    samples.reserve(request.indices.size());
    for (std::size_t i = 0; i < request.indices.size(); ++i) {
      samples.push_back(samples_->get(request.indices[i], request.key(i)));
    }
    batch = join_(std::move(samples));
  }

 private:
  const std::shared_ptr<const SampleDataset<S>> samples_;
  const Join join_;
};

/// Turns `samples`, a std::shared_ptr to a SampleDataset, into a data set of the batches that
/// `join` makes. `join` is the collate_fn of torch.utils.data.DataLoader.
template <class D, class Join>
auto collate(std::shared_ptr<D> samples, Join join) {
  using S = typename D::SampleType;
  return std::make_shared<const CollatedDataset<S, Join>>(std::move(samples), std::move(join));
}

/// Turns `samples` into a data set of stacked samples, see stack_samples().
template <class D>
auto collate(std::shared_ptr<D> samples) {
  using S = typename D::SampleType;
  return collate(std::move(samples),
                 [](const std::vector<S>& batch) { return stack_samples(batch); });
}

}  // namespace lockstep
