#include <lockstep/data/samplers/sampler.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/data/samplers/batch_sampler.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>
#include <lockstep/data/samplers/weighted_sampler.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using Indices = std::vector<std::int64_t>;

struct CommandResult {
  std::string output;
  int status = -1;
};

CommandResult run(const std::string& command) {
  CommandResult result;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[1 << 16];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    result.output.append(buffer, size);
  }
  result.status = pclose(pipe);
  return result;
}

// The weights that sampler_oracle.py uses.
std::vector<double> oracle_weights(std::int64_t count) {
  std::vector<double> weights(count);
  for (std::int64_t i = 0; i < count; ++i) {
    weights[i] = (i % 5 != 4 ? static_cast<double>((i * 37 + 11) % 101) : 0.0) / 7;
  }
  return weights;
}

Indices every_third(std::int64_t count) {
  Indices indices(count);
  for (std::int64_t i = 0; i < count; ++i) indices[i] = 2 + 3 * i;
  return indices;
}

std::string batches_text(const BatchSampler& sampler, std::int64_t epoch) {
  std::ostringstream out;
  for (const auto& batch : sampler.batches(epoch)) {
    for (const std::int64_t index : batch) out << ' ' << index;
    out << " |";
  }
  return out.str();
}

std::string indices_text(const Sampler& sampler, std::int64_t epoch) {
  const Indices indices = sampler.indices(epoch);
  EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(indices.size()));
  std::ostringstream out;
  for (const std::int64_t index : indices) out << ' ' << index;
  return out.str();
}

// The indices that our sampler gives for the arguments on a line of sampler_oracle.py.
std::string our_text(const std::string& kind, const Indices& words) {
  const auto at = [&](std::size_t i) { return words.at(i); };
  const auto flag = [&](std::size_t i) { return words.at(i) != 0; };
  const auto seed = [&](std::size_t i) { return static_cast<std::uint64_t>(words.at(i)); };
  if (kind == "distributed") {
    const DistributedSampler sampler(at(0), {.rank = static_cast<int>(at(2)),
                                             .world_size = static_cast<int>(at(1)),
                                             .shuffle = flag(5),
                                             .seed = seed(3),
                                             .drop_last = flag(6)});
    return indices_text(sampler, at(4));
  }
  if (kind == "random") {
    const RandomSampler sampler(at(0),
                                {.replacement = flag(2), .num_samples = at(1), .seed = seed(3)});
    return indices_text(sampler, at(4));
  }
  if (kind == "subset") {
    return indices_text(SubsetRandomSampler(every_third(at(0)), seed(1)), at(2));
  }
  if (kind == "weighted") {
    const WeightedRandomSampler sampler(
        oracle_weights(at(0)), {.num_samples = at(1), .replacement = flag(2), .seed = seed(3)});
    return indices_text(sampler, at(4));
  }
  const BatchSampler sampler(RandomSampler(at(0), {.seed = seed(3)}),
                             {.batch_size = at(1), .drop_last = flag(2)});
  return kind == "batch" ? batches_text(sampler, at(4)) : "no such kind";
}

TEST(Samplers, EqualPyTorchsIndexForIndex) {
  const std::string python =
      environment_string("LOCKSTEP_PYTHON").value_or(LOCKSTEP_DEFAULT_PYTHON);
  if (run("'" + python + "' -c 'import torch' 2>/dev/null").status != 0) {
    GTEST_SKIP() << "needs a Python with torch: set LOCKSTEP_PYTHON to it (tried '" << python
                 << "')";
  }
  const CommandResult oracle = run("'" + python + "' '" LOCKSTEP_SAMPLER_ORACLE "'");
  ASSERT_EQ(oracle.status, 0);
  std::istringstream lines(oracle.output);
  std::map<std::string, int> cases;
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(" :");
    ASSERT_NE(colon, std::string::npos) << line;
    std::istringstream in(line.substr(0, colon));
    std::string kind;
    Indices words;
    in >> kind;
    for (std::int64_t word = 0; in >> word;) words.push_back(word);
    // A whole order would make the message too long. The first difference is enough.
    std::string expected = line.substr(colon + 2);
    while (expected.ends_with(' ')) expected.pop_back();
    const std::string ours = our_text(kind, words);
    const auto [mine, theirs] =
        std::mismatch(ours.begin(), ours.end(), expected.begin(), expected.end());
    EXPECT_TRUE(ours == expected) << line.substr(0, colon) << " from character "
                                  << (mine - ours.begin());
    ++cases[kind];
  }
  for (const char* kind : {"distributed", "random", "subset", "weighted", "batch"}) {
    EXPECT_GE(cases[kind], 35) << kind;
  }
}

// Properties that hold for every order, checked without an oracle too.
TEST(DistributedSampler, TheRanksShareEachEpochEvenly) {
  for (const auto& [n, world] : {std::pair{10, 1}, {10, 2}, {11, 2}, {13, 4}, {64, 8}}) {
    for (std::int64_t epoch : {0, 1}) {
      std::vector<int> seen(n);
      for (int rank = 0; rank < world; ++rank) {
        const DistributedSampler sampler(n, {.rank = rank, .world_size = world, .seed = 3});
        const Indices indices = sampler.indices(epoch);
        EXPECT_EQ(static_cast<int>(indices.size()), (n + world - 1) / world);
        for (const std::int64_t index : indices) ++seen.at(index);
      }
      int repeated = 0;
      for (const int count : seen) {
        EXPECT_GE(count, 1);
        repeated += count - 1;
      }
      EXPECT_EQ(repeated, (world - n % world) % world);
    }
  }
}

TEST(EvaluationSampler, EveryIndexOnceInOrder) {
  struct Case {
    std::int64_t size;
    int rank;
    int world_size;
    Indices expected;
  };
  const Case cases[] = {
      {5, 0, 1, {0, 1, 2, 3, 4}},
      {5, 0, 2, {0, 2, 4}},
      {5, 1, 2, {1, 3}},
      {2, 1, 3, {1}},
      {2, 2, 3, {}},
      {0, 0, 1, {}},
  };
  for (const Case& c : cases) {
    const EvaluationSampler sampler(c.size, c.rank, c.world_size);
    EXPECT_EQ(sampler.indices(0), c.expected);
    EXPECT_EQ(sampler.indices(7), c.expected);
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(c.expected.size()));
  }
}

TEST(RandomSampler, RepeatsWholeOrdersWithoutReplacement) {
  const RandomSampler sampler(5, {.num_samples = 12, .seed = 3});
  const Indices indices = sampler.indices(1);
  ASSERT_EQ(indices.size(), 12U);
  std::vector<int> seen(5);
  for (int i = 0; i < 10; ++i) ++seen.at(indices[i]);
  EXPECT_EQ(seen, std::vector<int>(5, 2));
  EXPECT_NE(indices, sampler.indices(2));
}

TEST(WeightedRandomSampler, DrawsByWeight) {
  const WeightedRandomSampler sampler({3, 0, 1}, {.num_samples = 40'000, .seed = 2});
  std::vector<double> share(3);
  for (const std::int64_t index : sampler.indices(0)) share.at(index) += 1.0 / 40'000;
  EXPECT_NEAR(share[0], 0.75, 0.01);  // four and a half standard deviations
  EXPECT_EQ(share[1], 0);
  EXPECT_NEAR(share[2], 0.25, 0.01);
}

TEST(WeightedRandomSampler, WithoutReplacementEveryWeightAboveZeroComesOnce) {
  const WeightedRandomSampler sampler({0.5, 0, 2, 1e-3, 0, 7},
                                      {.num_samples = 4, .replacement = false});
  for (const std::int64_t epoch : {0, 1, 2}) {
    Indices indices = sampler.indices(epoch);
    std::sort(indices.begin(), indices.end());
    EXPECT_EQ(indices, (Indices{0, 2, 3, 5}));
  }
}

// Our search for the drawn number differs from multinomial's, but must find the same index for
// every distribution of weights.
TEST(WeightedRandomSampler, FindsWhatMultinomialFinds) {
  constexpr std::int64_t kWeights = 100'003;
  using Weight = double (*)(std::int64_t);
  const Weight families[] = {
      [](std::int64_t) { return 1.0; },
      [](std::int64_t i) { return static_cast<double>(i * 7919 % 1000) / 999; },
      [](std::int64_t i) { return i == kWeights / 2 ? 1.0 : 1e-9; },  // most are in one slice
      [](std::int64_t i) { return i % 3 == 0 ? 0.0 : std::exp2(-static_cast<double>(i % 60)); },
      [](std::int64_t i) { return i == 0 || i > 9 ? 0.0 : 0.1; },
  };
  for (std::size_t family = 0; family < std::size(families); ++family) {
    std::vector<double> weights(kWeights);
    for (std::int64_t i = 0; i < kWeights; ++i) weights[i] = families[family](i);
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(7 + 2);
    const auto expected =
        torch::multinomial(torch::tensor(weights, torch::kFloat64), kWeights, true, generator);
    const Indices indices = WeightedRandomSampler(weights, {.seed = 7}).indices(2);
    EXPECT_TRUE(torch::equal(torch::tensor(indices), expected)) << "family " << family;
  }
}

// multinomial() makes a single draw as if without replacement, which gives another index.
TEST(WeightedRandomSampler, DrawsOneIndexAsMultinomialDoes) {
  const std::vector<double> weights = {0.5, 0, 2, 1, 3};
  for (const bool replacement : {true, false}) {
    const WeightedRandomSampler sampler(weights,
                                        {.num_samples = 1, .replacement = replacement, .seed = 7});
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      const auto generator =
          at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(7 + epoch));
      const auto expected =
          torch::multinomial(torch::tensor(weights, torch::kFloat64), 1, replacement, generator);
      EXPECT_EQ(sampler.indices(epoch), Indices{expected.item<std::int64_t>()}) << epoch;
    }
  }
}

// With this many weights LibTorch draws the exponential numbers on several threads.
TEST(WeightedRandomSampler, DoesNotDependOnTheNumberOfThreads) {
  const auto order = [](int threads, bool replacement) {
    at::set_num_threads(threads);
    return WeightedRandomSampler(oracle_weights(200'000),
                                 {.num_samples = 1000, .replacement = replacement})
        .indices(3);
  };
  const int before = at::get_num_threads();
  for (const bool replacement : {false, true})
    EXPECT_EQ(order(1, replacement), order(3, replacement));
  at::set_num_threads(before);
}

// Rank 0's position serves all ranks, also when the last round repeats or drops indices.
TEST(DistributedSampler, GoesOnWithAnotherNumberOfRanks) {
  struct Case {
    std::int64_t size;
    int ranks;
    std::int64_t taken_by_each;
    int other_ranks;
  };
  const Case cases[] = {{12, 2, 3, 3}, {13, 4, 2, 8}, {11, 1, 6, 2}, {10, 4, 3, 7}, {3, 8, 1, 2}};
  for (const Case& c : cases) {
    SamplerCursor before(DistributedSampler(c.size, {.world_size = c.ranks, .seed = 5}));
    before.set_epoch(2);
    for (std::int64_t i = 0; i < c.taken_by_each; ++i) ASSERT_TRUE(before.next());
    const Indices order = DistributedSampler(c.size, {.seed = 5}).indices(2);
    const std::int64_t taken = std::min(c.size, c.ranks * c.taken_by_each);
    std::set<std::int64_t> left(order.begin() + taken, order.end());
    std::set<std::int64_t> given;
    for (int rank = 0; rank < c.other_ranks; ++rank) {
      SamplerCursor after(
          DistributedSampler(c.size, {.rank = rank, .world_size = c.other_ranks, .seed = 5}));
      after.restore(before.position());
      const std::int64_t each = (c.size - taken + c.other_ranks - 1) / c.other_ranks;
      EXPECT_EQ(after.remaining(), each);
      while (const auto index = after.next()) {
        // The padding repeats the first indices of the order.
        if (!left.contains(*index)) continue;
        EXPECT_TRUE(given.insert(*index).second) << "index " << *index;
      }
    }
    EXPECT_EQ(given, left) << c.size << " indices, from " << c.ranks << " to " << c.other_ranks;
  }
}

TEST(Samplers, DescribeWhatTheOrderFollowsFrom) {
  EXPECT_EQ(DistributedSampler(9, {.rank = 1, .world_size = 2, .seed = 3}).describe(),
            "DistributedSampler(dataset_size=9, shuffle=true, seed=3, drop_last=false)");
  EXPECT_EQ(EvaluationSampler(9, 1, 2).describe(), "EvaluationSampler(dataset_size=9)");
  EXPECT_EQ(SequentialSampler(9).describe(), "SequentialSampler(dataset_size=9)");
  EXPECT_EQ(RandomSampler(9, {.num_samples = 4, .seed = 1}).describe(),
            "RandomSampler(dataset_size=9, replacement=false, num_samples=4, seed=1)");
  EXPECT_EQ(SubsetRandomSampler({}, 12).describe(),
            "SubsetRandomSampler(0 indices with fingerprint cbf29ce484222325, seed=12)");
  EXPECT_EQ(WeightedRandomSampler({0.5, 2}, {.num_samples = 30, .seed = 12}).describe(),
            "WeightedRandomSampler(2 weights with fingerprint 26af58d4e4be5868, num_samples=30, "
            "replacement=true, seed=12)");
  EXPECT_NE(SubsetRandomSampler({1, 2}).describe(), SubsetRandomSampler({1, 3}).describe());
  EXPECT_NE(WeightedRandomSampler({1, 2}).describe(), WeightedRandomSampler({1, 3}).describe());
}

TEST(Samplers, GoOnAtAnyIndexAsIfTheyHadNotStopped) {
  const std::vector<std::shared_ptr<const Sampler>> samplers = {
      std::make_shared<SequentialSampler>(6),
      std::make_shared<EvaluationSampler>(13, 1, 2),
      std::make_shared<DistributedSampler>(11,
                                           DistributedSamplerOptions{.rank = 1, .world_size = 2}),
      std::make_shared<DistributedSampler>(
          11, DistributedSamplerOptions{.rank = 1, .world_size = 2, .drop_last = true}),
      std::make_shared<RandomSampler>(6),
      std::make_shared<RandomSampler>(6, RandomSamplerOptions{.replacement = true}),
      std::make_shared<SubsetRandomSampler>(Indices{4, 8, 1, 9}),
      std::make_shared<WeightedRandomSampler>(std::vector<double>{1, 2, 3, 4}),
  };
  for (const auto& sampler : samplers) {
    const Indices whole = sampler->indices(2);
    for (std::int64_t stop = 0; stop <= sampler->size(); ++stop) {
      SamplerCursor cursor(sampler);
      cursor.set_epoch(2);
      for (std::int64_t i = 0; i < stop; ++i) EXPECT_EQ(cursor.next(), whole[i]);
      SamplerCursor resumed(sampler);
      resumed.restore(sampler_position(to_settings(cursor.position())));
      ASSERT_EQ(resumed.remaining(), sampler->size() - stop) << sampler->describe();
      if (stop == sampler->size()) continue;
      EXPECT_EQ(resumed.next(resumed.remaining()), Indices(whole.begin() + stop, whole.end()))
          << sampler->describe() << " from " << stop;
    }
  }
}

TEST(Samplers, RefuseAPlaceOutsideOfTheWorld) {
  struct Place {
    std::int64_t size;
    int rank;
    int world;
    const char* message;
  };
  const Place places[] = {{-1, 0, 1, "dataset_size must be at least 0, got -1"},
                          {5, 0, 0, "world_size must be at least 1, got 0"},
                          {5, 2, 2, "rank must be from 0 to 1, got 2"},
                          {5, -1, 2, "rank must be from 0 to 1, got -1"}};
  for (const auto& [size, rank, world, message] : places) {
    EXPECT_EQ(message_of<ConfigError>([&, n = size, place = rank, ranks = world] {
                DistributedSampler(n, {.rank = place, .world_size = ranks});
              }),
              std::string("DistributedSampler: ") + message);
    EXPECT_EQ(message_of<ConfigError>([&, n = size, place = rank, ranks = world] {
                EvaluationSampler(n, place, ranks);
              }),
              std::string("EvaluationSampler: ") + message);
  }
  EXPECT_EQ(message_of<ConfigError>([] { SequentialSampler(-1); }),
            "SequentialSampler: dataset_size must be at least 0, got -1");
}

TEST(Samplers, RefuseWhatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto random = [](std::int64_t size, std::int64_t num_samples) {
    return message_of<ConfigError>([&] { RandomSampler(size, {.num_samples = num_samples}); });
  };
  EXPECT_EQ(message_of<ConfigError>([] { RandomSampler(0); }),
            "RandomSampler: dataset_size must be at least 1, got 0");
  EXPECT_EQ(random(3, 0), "RandomSampler: num_samples must be at least 1, got 0");
  EXPECT_EQ(random(-3, 1), "RandomSampler: dataset_size must be at least 1, got -3");
  EXPECT_EQ(message_of<ConfigError>([] { SubsetRandomSampler({2, -1}); }),
            "SubsetRandomSampler: indices[1] must be at least 0, got -1");

  struct Case {
    std::vector<double> weights;
    WeightedRandomSamplerOptions options;
    const char* message;
  };
  const Case cases[] = {
      {{}, {}, "the number of weights must be at least 1, got 0"},
      {std::vector<double>((1 << 24) + 1),
       {},
       "torch.multinomial takes at most 16777216 weights, got 16777217"},
      {{1, -2}, {}, "weights[1] must be at least 0 and finite, got -2"},
      {{nan, 1}, {}, "weights[0] must be at least 0 and finite, got nan"},
      {{1, infinity}, {}, "weights[1] must be at least 0 and finite, got inf"},
      {{0, 0}, {}, "the sum of the weights must be greater than 0, got 0"},
      {{1e308, 1e308}, {}, "the sum of the weights is infinite; divide them by the largest"},
      {{1, 2}, {.num_samples = 0}, "num_samples must be at least 1, got 0"},
      {{1, 0, 2},
       {.replacement = false},
       "num_samples must be at most 2, the number of weights above 0, got 3; give fewer or "
       "replacement = true"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(message_of<ConfigError>([&] { WeightedRandomSampler(c.weights, c.options); }),
              std::string("WeightedRandomSampler: ") + c.message);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
