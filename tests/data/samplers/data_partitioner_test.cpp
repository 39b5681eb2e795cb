#include <lockstep/data/samplers/data_partitioner.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using Indices = std::vector<std::int64_t>;

Indices sizes_of(const DataPartitioner& partitioner) {
  Indices sizes;
  for (int i = 0; i < partitioner.size(); ++i) {
    sizes.push_back(static_cast<std::int64_t>(partitioner.use(i).size()));
  }
  return sizes;
}

TEST(DataPartitioner, CutsWhereTheFractionsEnd) {
  struct Case {
    std::int64_t images;
    std::vector<double> fractions;
    Indices sizes;
  };
  const Case cases[] = {
      {10, {1}, {10}},
      {10, {0.7, 0.2, 0.1}, {7, 2, 1}},
      {10, {0.7, 0.1, 0.2}, {7, 1, 2}},  // 0.7 + 0.1 is a little less than 0.8
      {10, {0.1, 0.2, 0.7}, {1, 2, 7}},  // 0.1 + 0.2 is a little more than 0.3
      {11, {0.5, 0.5}, {5, 6}},
      {11, {0.5, 0.25}, {5, 3}},  // the rest belongs to no partition
      {10, {0.3333333333, 0.3333333333, 0.3333333334}, {3, 3, 4}},
      {2, {0.5, 0.5}, {1, 1}},
      {120'000, std::vector<double>(10, 0.1), Indices(10, 12'000)},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(sizes_of(DataPartitioner(c.images, c.fractions)), c.sizes)
        << c.images << " images, " << c.fractions.size() << " partitions";
  }
}

TEST(DataPartitioner, EqualPartitionsAreDisjointAndCoverAll) {
  for (const std::int64_t images : {1, 2, 7, 64, 1000, 60'001}) {
    for (const int count : {1, 2, 3, 6, 7, 64}) {
      if (count > images) continue;
      const auto partitions = DataPartitioner::equal(images, count, 5);
      ASSERT_EQ(partitions.size(), count);
      std::vector<int> seen(images);
      for (int i = 0; i < count; ++i) {
        const Indices mine = partitions.use(i);
        const auto size = static_cast<std::int64_t>(mine.size());
        EXPECT_GE(size, images / count);
        EXPECT_LE(size, (images + count - 1) / count);
        for (const std::int64_t index : mine) ++seen.at(index);
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), images) << count << " partitions";
    }
  }
}

TEST(DataPartitioner, ShufflesBySeedAsTheSamplersDo) {
  const DataPartitioner partitions(20, {0.6, 0.4}, 3);
  Indices all = partitions.use(0);
  const Indices second = partitions.use(1);
  EXPECT_EQ(second, DataPartitioner(20, {0.6, 0.4}, 3).use(1));
  EXPECT_NE(second, DataPartitioner(20, {0.6, 0.4}, 4).use(1));
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_EQ(all, RandomSampler(20, {.seed = 3}).indices(0));
}

TEST(DataPartitioner, APartitionIsASamplersSubset) {
  Indices mine = DataPartitioner::equal(100, 4, 1).use(2);
  const SubsetRandomSampler sampler(mine, 1);
  EXPECT_NE(sampler.indices(0), sampler.indices(1));
  std::sort(mine.begin(), mine.end());
  for (const std::int64_t epoch : {0, 1}) {
    Indices shuffled = sampler.indices(epoch);
    std::sort(shuffled.begin(), shuffled.end());
    EXPECT_EQ(shuffled, mine);
  }
}

// Partitions are different samplers: so a position in one has no meaning in another.
TEST(DataPartitioner, EachRankGoesOnFromItsOwnPosition) {
  const auto partitions = DataPartitioner::equal(100, 2, 1);
  const auto cursor_of = [&](int rank) {
    return SamplerCursor(SubsetRandomSampler(partitions.use(rank), 7));
  };
  for (const int rank : {0, 1}) {
    SamplerCursor before = cursor_of(rank);
    before.set_epoch(3);
    before.next(20);
    const auto saved = sampler_position(to_settings(before.position()));
    SamplerCursor after = cursor_of(rank);
    after.restore(saved);
    const Indices rest = before.next(50);
    EXPECT_EQ(rest.size(), 30U);
    EXPECT_EQ(after.next(50), rest);
    SamplerCursor other = cursor_of(1 - rank);
    EXPECT_THROW(other.restore(saved), CheckpointError);
  }
}

TEST(DataPartitioner, RefusesFractionsThatAreNone) {
  struct Case {
    std::int64_t images;
    std::vector<double> fractions;
    const char* message;
  };
  const Case cases[] = {
      {0, {1}, "dataset_size must be at least 1, got 0"},
      {10, {}, "the number of fractions must be at least 1, got 0"},
      {10, {0.5, 0}, "fractions[1] must be greater than 0, got 0"},
      {10, {-0.5, 1}, "fractions[0] must be greater than 0, got -0.5"},
      {10,
       {std::numeric_limits<double>::quiet_NaN()},
       "fractions[0] must be greater than 0, got nan"},
      {10, {0.7, 0.2, 0.2}, "fractions must sum to at most 1, got 1.1"},
      {10, {1, 2e-9}, "fractions must sum to at most 1, got 1.000000002"},
      {10, {0.95, 0.04}, "fractions[1] = 0.04 of 10 images is less than one image"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(message_of<ConfigError>([&] { DataPartitioner(c.images, c.fractions); }),
              std::string("DataPartitioner: ") + c.message);
  }
  EXPECT_EQ(message_of<ConfigError>([] { DataPartitioner::equal(3, 4); }),
            "DataPartitioner: count must be from 1 to 3, got 4");
  for (const int partition : {-1, 2}) {
    EXPECT_EQ(
        message_of<ConfigError>([&] { DataPartitioner::equal(3, 2).use(partition); }),
        "DataPartitioner::use: partition must be from 0 to 1, got " + std::to_string(partition));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
