// An epoch that is begun with some number of ranks and finished with another.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/philox.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>

namespace lockstep::testing_support {
namespace {

using Indices = std::vector<std::int64_t>;

struct Epoch {
  bool evaluation = false;
  bool drop_last = false;
  bool shuffle = false;
  std::int64_t size = 0;

  std::shared_ptr<const Sampler> sampler(int rank, int ranks) const {
    if (evaluation) return std::make_shared<const EvaluationSampler>(size, rank, ranks);
    return std::make_shared<const DistributedSampler>(
        size, DistributedSamplerOptions{.rank = rank,
                                        .world_size = ranks,
                                        .shuffle = shuffle,
                                        .seed = 3,
                                        .drop_last = drop_last});
  }
  std::string name() const {
    return lockstep::str(size, " indices", evaluation ? " for evaluation" : "",
                         drop_last ? ", drop_last" : "");
  }
};

// An entry of an epoch's order: the index, and how often it occurred before.
struct Sample {
  std::int64_t index = 0;
  std::int64_t occurrence = 0;
  bool operator==(const Sample&) const = default;
};
using Samples = std::vector<Sample>;

Sample take_one(SamplerCursor& cursor) {
  const auto occurrences = cursor.occurrences();
  const Sample sample{cursor.rest().front(), occurrences.empty() ? 0 : occurrences.front()};
  cursor.skip(1);
  return sample;
}

// `ranks` ranks continue at `position`: each takes `steps` samples, or as many as are left. Returns
// the samples in the order of the ranks' turns, and sets `position` to the position after them.
Samples take(const Epoch& epoch, int ranks, std::int64_t steps, SamplerPosition& position) {
  std::vector<SamplerCursor> cursors;
  for (int rank = 0; rank < ranks; ++rank) {
    cursors.emplace_back(epoch.sampler(rank, ranks));
    cursors.back().restore(sampler_position(to_settings(position)));
  }
  Samples taken;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (SamplerCursor& cursor : cursors) {
      if (cursor.remaining() > 0) taken.push_back(take_one(cursor));
    }
  }
  // If shares are unequal, rank 0 has the longest one.
  const std::int64_t rank_0 = cursors[0].position().taken;
  for (const SamplerCursor& cursor : cursors) {
    if (!epoch.evaluation) {
      EXPECT_EQ(cursor.position().taken, rank_0);
    }
    EXPECT_LE(cursor.remaining(), cursors[0].remaining());
  }
  position = cursors[0].position();
  return taken;
}

// The number of ranks changes several times in an epoch. Together the ranks go through its order
// once, and only the last round is padded with the order's beginning, or dropped, as
// DistributedSampler does.
TEST(ResumeWithOtherRanks, GivesEveryRemainingSampleOnce) {
  PhiloxStream random(4, 0, 0);
  const auto between = [&](std::uint32_t least, std::uint32_t most) {
    return static_cast<int>(least + random.below(most - least + 1));
  };
  int undivided = 0;
  for (int round = 0; round < 600; ++round) {
    const Epoch epoch{.evaluation = random.below(3) == 0,
                      .drop_last = random.below(3) == 0,
                      .shuffle = random.below(2) == 0,
                      .size = between(1, 60)};
    const Indices order = epoch.sampler(0, 1)->indices(5);
    SamplerPosition position{epoch.sampler(0, 1)->describe(), 5, 0};
    std::string story = epoch.name();
    Samples seen;
    int ranks = 1;
    for (int segment = between(2, 5); segment > 0; --segment) {
      ranks = between(1, 9);
      undivided += position.taken % ranks != 0 && position.taken < epoch.size ? 1 : 0;
      const std::int64_t steps = segment == 1 ? 100 : between(0, 4);
      story += lockstep::str(", ", ranks, " ranks take ", steps, " each");
      const Samples taken = take(epoch, ranks, steps, position);
      seen.insert(seen.end(), taken.begin(), taken.end());
    }
    SCOPED_TRACE(story);
    if (epoch.drop_last && !epoch.evaluation) {
      ASSERT_GT(static_cast<std::int64_t>(seen.size()), epoch.size - 9);
      ASSERT_LE(static_cast<std::int64_t>(seen.size()), epoch.size);
    } else {
      ASSERT_GE(static_cast<std::int64_t>(seen.size()), epoch.size);
      ASSERT_LT(static_cast<std::int64_t>(seen.size()), epoch.size + (epoch.evaluation ? 1 : 9));
      EXPECT_EQ(position.taken, epoch.size);
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const Sample expected{order[i % order.size()], static_cast<std::int64_t>(i / order.size())};
      ASSERT_EQ(seen[i], expected)
          << "place " << i << ": " << seen[i].index << ", occurrence " << seen[i].occurrence;
    }
  }
  EXPECT_GT(undivided, 400)
      << "too few cases in which the indices taken do not divide by the ranks";
}

// With an unchanged number of ranks, the run continues as if it had not been interrupted, also when
// the rest begins between two turns.
TEST(ResumeWithOtherRanks, TheSameRanksGoOnAsIfTheyHadNotStopped) {
  const Epoch epoch{.shuffle = true, .size = 47};
  for (const std::int64_t taken : {0, 4, 7, 11}) {
    for (std::int64_t steps = 0; steps <= 10; ++steps) {
      SamplerPosition stopped{epoch.sampler(0, 1)->describe(), 2, taken};
      SamplerPosition whole = stopped;
      Samples parts = take(epoch, 4, steps, stopped);
      const Samples rest = take(epoch, 4, 100, stopped);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(parts, take(epoch, 4, 100, whole)) << taken << " taken, stopped after " << steps;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
