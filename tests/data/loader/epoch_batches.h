// Collects the batches of an epoch, so that tests can compare them.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include <lockstep/data/loader/loader.h>

namespace lockstep::testing_support {

/// The remaining batches of the epoch.
inline std::vector<Batch> read_rest(Loader& loader) {
  std::vector<Batch> batches;
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch.images.size(0), batch.size);
    EXPECT_EQ(batch.labels.size(0), batch.size);
    batches.push_back({batch.images.clone(), batch.labels.clone(), batch.size});
  }
  return batches;
}

inline std::vector<Batch> read_epoch(Loader& loader, std::int64_t epoch,
                                     std::int64_t first_step = 0) {
  loader.set_epoch(epoch, first_step);
  return read_rest(loader);
}

/// Compares bit for bit, but allows different memory layouts of the images.
inline void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i].images, b[i].images)) << "batch " << i;
    EXPECT_TRUE(torch::equal(a[i].labels, b[i].labels)) << "batch " << i;
  }
}

}  // namespace lockstep::testing_support
