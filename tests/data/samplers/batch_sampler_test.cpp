#include <lockstep/data/samplers/batch_sampler.h>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

Batches rest(BatchCursor& cursor) {
  Batches batches;
  for (auto batch = cursor.next(); !batch.empty(); batch = cursor.next()) batches.push_back(batch);
  return batches;
}

TEST(BatchSampler, GroupsTheSamplersIndices) {
  struct Case {
    std::int64_t size;
    BatchSamplerOptions options;
    Batches expected;
  };
  const Case cases[] = {
      {7, {.batch_size = 3}, {{0, 1, 2}, {3, 4, 5}, {6}}},
      {7, {.batch_size = 3, .drop_last = true}, {{0, 1, 2}, {3, 4, 5}}},
      {6, {.batch_size = 3}, {{0, 1, 2}, {3, 4, 5}}},
      {6, {.batch_size = 3, .drop_last = true}, {{0, 1, 2}, {3, 4, 5}}},
      {2, {.batch_size = 3}, {{0, 1}}},
      {2, {.batch_size = 3, .drop_last = true}, {}},
      {2, {}, {{0}, {1}}},
      {0, {.batch_size = 3}, {}},
  };
  for (const Case& c : cases) {
    const BatchSampler sampler(SequentialSampler(c.size), c.options);
    EXPECT_EQ(sampler.batches(0), c.expected);
    EXPECT_EQ(sampler.batches(4), c.expected);
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(c.expected.size()));
  }
}

TEST(BatchCursor, GoesOnAtAnyBatchAsIfItHadNotStopped) {
  for (const bool drop_last : {false, true}) {
    const BatchSampler sampler(SequentialSampler(11), {.batch_size = 4, .drop_last = drop_last});
    for (std::int64_t stop = 0; stop <= sampler.size(); ++stop) {
      BatchCursor whole(sampler);
      whole.set_epoch(2);
      for (std::int64_t i = 0; i < stop; ++i) whole.next();
      BatchCursor resumed(sampler);
      resumed.restore(whole.position());
      EXPECT_EQ(resumed.position().epoch, 2);
      EXPECT_EQ(rest(resumed), rest(whole)) << "from batch " << stop;
    }
  }
}

// Half as many ranks with batches twice as large: each step has the same images.
TEST(BatchCursor, GoesOnWithBatchesOfAnotherSize) {
  BatchCursor two(BatchSampler(EvaluationSampler(12, 1, 2), {.batch_size = 2}));
  EXPECT_EQ(two.next(), (std::vector<std::int64_t>{1, 3}));
  BatchCursor one(BatchSampler(EvaluationSampler(12), {.batch_size = 4}));
  one.restore(two.position());
  EXPECT_EQ(rest(one), (Batches{{4, 5, 6, 7}, {8, 9, 10, 11}}));
}

TEST(BatchSampler, RefusesWhatIsNoBatch) {
  EXPECT_EQ(message_of<ConfigError>([] { BatchSampler(SequentialSampler(3), {.batch_size = 0}); }),
            "BatchSampler: batch_size must be at least 1, got 0");
  EXPECT_EQ(message_of<ConfigError>([] { BatchSampler(std::shared_ptr<const Sampler>(), {}); }),
            "BatchSampler: got no sampler");
}

}  // namespace
}  // namespace lockstep::testing_support
