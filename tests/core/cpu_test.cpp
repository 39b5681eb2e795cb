#include <lockstep/core/cpu.h>

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using Cpus = std::vector<int>;

TEST(CpusOfRank, Slices) {
  struct Case {
    Cpus cpus;
    int local_rank;
    int local_world_size;
    Cpus expected;
  };
  const Case cases[] = {
      {{0, 1, 2, 3}, 0, 1, {0, 1, 2, 3}},
      {{0, 1, 2, 3}, 0, 2, {0, 1}},
      {{0, 1, 2, 3}, 1, 2, {2, 3}},
      {{4, 6, 8, 9, 11}, 0, 2, {4, 6, 8}},  // the remainder goes to the first ranks
      {{4, 6, 8, 9, 11}, 1, 2, {9, 11}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, 2, 3, {6, 7}},
      {{3, 5}, 0, 3, {3}},  // ranks beyond the number of processors share them in turn
      {{3, 5}, 1, 3, {5}},
      {{3, 5}, 2, 3, {3}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(cpus_of_rank(c.cpus, c.local_rank, c.local_world_size), c.expected)
        << "rank " << c.local_rank << " of " << c.local_world_size;
  }
}

TEST(CpusOfRank, CoverAllWithoutOverlap) {
  for (int count = 1; count <= 9; ++count) {
    Cpus cpus(count);
    for (int i = 0; i < count; ++i) cpus[i] = 10 + i;
    for (int ranks = 1; ranks <= count; ++ranks) {
      Cpus together;
      for (int rank = 0; rank < ranks; ++rank) {
        const Cpus slice = cpus_of_rank(cpus, rank, ranks);
        together.insert(together.end(), slice.begin(), slice.end());
      }
      EXPECT_EQ(together, cpus) << ranks << " ranks";
    }
  }
}

TEST(CpusOfRank, AreAmongThoseThatTheRankPrefers) {
  const std::vector<Cpus> near = {{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}};
  EXPECT_EQ(cpus_of_rank(near, 0), (Cpus{0, 1}));
  EXPECT_EQ(cpus_of_rank(near, 1), (Cpus{4, 5, 6, 7}));
  EXPECT_EQ(cpus_of_rank(near, 2), (Cpus{2, 3}));
}

TEST(PinToCpus, RestrictsTheCallingThread) {
  const Cpus available = available_cpus();
  ASSERT_FALSE(available.empty());
  EXPECT_TRUE(std::is_sorted(available.begin(), available.end()));
  bool pinned = false, pinned_again = false;
  Cpus seen, seen_again;
  std::thread([&] {
    pinned = pin_to_cpus({available.back()});
    seen = available_cpus();
    pinned_again = pin_to_cpus(available);
    seen_again = available_cpus();
  }).join();
  EXPECT_TRUE(pinned);
  EXPECT_EQ(seen, Cpus{available.back()});
  EXPECT_TRUE(pinned_again);
  EXPECT_EQ(seen_again, available) << "all that are named";
  EXPECT_EQ(available_cpus(), available);
  EXPECT_FALSE(pin_to_cpus({})) << "a thread needs a processor";
  EXPECT_EQ(available_cpus(), available);
}

TEST(PeakRss, GrowsWithMemoryThatIsTouched) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::vector<char> block(kBytes, 1);
  EXPECT_GE(peak_rss_bytes(), static_cast<long long>(block.size()));
  EXPECT_GE(rss_bytes(), static_cast<long long>(block.size()));
  const long long proportional = proportional_bytes();  // 0: this kernel does not tell
  if (proportional != 0) {
    EXPECT_GE(proportional, static_cast<long long>(block.size()));
    EXPECT_LT(proportional, 2 * peak_rss_bytes());
  }
  EXPECT_LT(rss_bytes(), 2 * peak_rss_bytes());
}

// A clock that counts nanoseconds, while the kernel's usage of resources counts microseconds.
TEST(ProcessorSeconds, AreThoseOfTheClockOfTheProcess) {
  const auto clock_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = clock_seconds();
  const double before = processor_seconds();
  while (clock_seconds() - begin < 0.06) {
  }
  EXPECT_NEAR(processor_seconds() - before, clock_seconds() - begin, 0.03);
}

TEST(CpuNames, AreThoseThatTheKernelGives) {
  const std::string info = testing_support::read_text("/proc/cpuinfo");
  if (info.find("\nmodel name\t: ") == std::string::npos) {
    EXPECT_EQ(cpu_model_name(), "unknown processor");
  } else {
    EXPECT_NE(info.find("\nmodel name\t: " + cpu_model_name() + "\n"), std::string::npos);
  }
#if defined(__x86_64__)
  const auto has = [&](const char* flag) {
    return info.find(std::string(" ") + flag + " ") != std::string::npos;
  };
  EXPECT_EQ(simd_name(), has("avx512f") ? "AVX-512" : has("avx2") ? "AVX2" : "SSE2");
#endif
}

}  // namespace
}  // namespace lockstep
