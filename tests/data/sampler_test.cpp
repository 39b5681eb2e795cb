#include <lockstep/data/sampler.h>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::testing {
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

TEST(DistributedSampler, EqualsPyTorchsIndexForIndex) {
  const std::string python =
      environment_string("LOCKSTEP_PYTHON").value_or(LOCKSTEP_DEFAULT_PYTHON);
  if (run("'" + python + "' -c 'import torch' 2>/dev/null").status != 0) {
    GTEST_SKIP() << "needs a Python with torch: set LOCKSTEP_PYTHON to it (tried '" << python
                 << "')";
  }
  const CommandResult oracle = run("'" + python + "' '" LOCKSTEP_SAMPLER_ORACLE "'");
  ASSERT_EQ(oracle.status, 0);
  std::istringstream lines(oracle.output);
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    std::istringstream in(line);
    std::int64_t n = 0;
    std::int64_t epoch = 0;
    DistributedSamplerOptions options;
    char colon = 0;
    in >> n >> options.world_size >> options.rank >> options.seed >> epoch >> options.shuffle >>
        options.drop_last >> colon;
    ASSERT_EQ(colon, ':') << line;
    Indices expected;
    for (std::int64_t index = 0; in >> index;) expected.push_back(index);
    const DistributedSampler sampler(n, options);
    EXPECT_EQ(sampler.indices(epoch), expected) << line.substr(0, line.find(':'));
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(expected.size()));
  }
  EXPECT_GT(cases, 1000);
}

// What must hold without an oracle too.
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

TEST(Samplers, RefuseAPlaceOutsideOfTheWorld) {
  for (const auto& [size, rank, world] : {std::tuple{-1, 0, 1}, {5, 0, 0}, {5, 2, 2}, {5, -1, 2}}) {
    EXPECT_THROW(DistributedSampler(size, {.rank = rank, .world_size = world}), ConfigError);
    EXPECT_THROW(EvaluationSampler(size, rank, world), ConfigError);
  }
}

}  // namespace
}  // namespace lockstep::testing
