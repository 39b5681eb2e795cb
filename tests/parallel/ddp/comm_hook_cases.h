// Hand-made buckets and groups of ranks for tests of communication hooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>

namespace lockstep::testing_support {

using Shapes = std::vector<std::vector<std::int64_t>>;

/// A model's parameters and buckets for them, which are the same on all ranks.
struct Model : torch::nn::Module {
  explicit Model(const Shapes& shapes, torch::ScalarType type = torch::kFloat32) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      torch::Tensor value = torch::zeros(shapes[i], type);
      if (value.dim() == 4) value = value.to(torch::MemoryFormat::ChannelsLast);
      register_parameter("p" + std::to_string(i), value);
    }
  }
  GradBucket bucket(ProcessGroup& group, const std::vector<std::size_t>& members,
                    std::size_t index = 0, std::uint64_t layout = 0) {
    std::vector<detail::NamedParameter> named;
    for (const std::size_t i : members) named.push_back({"p" + std::to_string(i), parameters()[i]});
    GradBucket bucket = detail::make_bucket(named, group, ParameterMemory::kAsIs);
    bucket.index = index;
    bucket.layout = layout;
    return bucket;
  }
};

/// Normally distributed numbers with the shape and dtype of `tensor`.
inline torch::Tensor random_like(const torch::Tensor& tensor, std::uint64_t seed) {
  return torch::randn(tensor.sizes(), at::detail::createCPUGenerator(seed),
                      torch::dtype(torch::kFloat64))
      .to(tensor.scalar_type());
}

/// One rank's gradient in one step, and its mean over the ranks. `place` is the parameter's index.
inline torch::Tensor gradient_of(const torch::Tensor& like, std::size_t place, int step, int rank) {
  return random_like(like, 1000 * place + 10 * static_cast<std::size_t>(step) +
                               static_cast<std::size_t>(rank) + 1);
}
inline torch::Tensor mean_of(const torch::Tensor& like, std::size_t place, int step, int size) {
  torch::Tensor sum = torch::zeros_like(like, torch::kFloat64);
  for (int rank = 0; rank < size; ++rank) sum += gradient_of(like, place, step, rank);
  return sum / size;
}

/// The norm of `a` - `b`, relative to that of `b`.
inline double relative_error(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor wide = b.to(torch::kFloat64);
  return ((a.to(torch::kFloat64) - wide).norm() / wide.norm().clamp_min(1e-20)).item<double>();
}

/// The backend and size of a group of ranks.
struct HookCase {
  const char* backend;
  int size;
};

/// Runs a test on all ranks of its case.
class CommHooks : public ::testing::TestWithParam<HookCase> {
 protected:
  void run(const std::function<void(ProcessGroup, int rank)>& body) {
    const auto [backend, size] = GetParam();
    EXPECT_EQ(run_group(size, backend, [&](ProcessGroup group) { body(group, group.rank()); }),
              no_errors(size));
  }
};

/// Expects that `body` throws an `Expected` whose message contains `text`.
template <class Expected>
void expect_error(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    ADD_FAILURE() << "no error that says " << text;
  } catch (const Expected& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

}  // namespace lockstep::testing_support
