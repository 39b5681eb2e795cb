#include <lockstep/core/memory.h>

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(Memory, OfThisHost) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.available, 0);
  EXPECT_LE(memory.available, memory.total);
  EXPECT_GE(memory.left(), memory.available);
}

// A host with 1000 MiB of memory, 600 MiB of them available, and 50 MiB of swap.
class HostTree : public ::testing::Test {
 protected:
  HostTree() {
    write("proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable:  614400 kB\nSwapFree: 51200 kB\n");
    write("proc/self/cgroup", "4:memory:/old\n0::/job/step\n");
  }
  void write(const std::string& path, const std::string& text) const {
    const auto file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void limit(const std::string& group, std::int64_t megabytes, std::int64_t used) const {
    write("sys/fs/cgroup/" + group + "/memory.max", std::to_string(megabytes * kMiB));
    write("sys/fs/cgroup/" + group + "/memory.current", std::to_string(used * kMiB));
  }
  HostMemory memory() const { return host_memory(folder_.path()); }

 private:
  testing_support::TemporaryDirectory folder_;
};

TEST_F(HostTree, WithoutLimits) {
  write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(memory().total, 1000 * kMiB);
  EXPECT_EQ(memory().available, 600 * kMiB);
  EXPECT_EQ(memory().left(), 650 * kMiB);
}

TEST_F(HostTree, TheTightestLimitOfTheGroupsCounts) {
  limit("job/step", 900, 10);
  limit("job", 400, 100);
  EXPECT_EQ(memory().total, 400 * kMiB);
  EXPECT_EQ(memory().available, 300 * kMiB);
  limit("", 350, 150);
  EXPECT_EQ(memory().available, 200 * kMiB);
  limit("job/step", 50, 60);
  EXPECT_EQ(memory().available, 0);
}

TEST_F(HostTree, CachesOfAGroupAreNotUsed) {
  limit("job", 400, 300);
  write("sys/fs/cgroup/job/memory.stat",
        "anon 5\ninactive_file 104857600\nactive_file 52428800\nslab_reclaimable 1048576\n");
  write("sys/fs/cgroup/job/memory.swap.max", "0\n");
  EXPECT_EQ(memory().available, 251 * kMiB);
  EXPECT_EQ(memory().free_swap, 0);
}

TEST_F(HostTree, LimitsOfSwapCount) {
  limit("job", 2000, 50);
  write("sys/fs/cgroup/job/memory.stat", "active_file 104857600\n");  // more than is used
  write("sys/fs/cgroup/job/memory.swap.max", std::to_string(30 * kMiB));
  write("sys/fs/cgroup/job/memory.swap.current", std::to_string(10 * kMiB));
  EXPECT_EQ(memory().total, 1000 * kMiB);
  EXPECT_EQ(memory().available, 600 * kMiB);
  EXPECT_EQ(memory().free_swap, 20 * kMiB);
  EXPECT_EQ(memory().left(), 620 * kMiB);
  write("sys/fs/cgroup/job/memory.swap.max", std::to_string(300 * kMiB));
  EXPECT_EQ(memory().free_swap, 50 * kMiB);
  write("sys/fs/cgroup/memory.swap.max", std::to_string(5 * kMiB));
  EXPECT_EQ(memory().free_swap, 5 * kMiB);
}

TEST(Memory, IsUnlimitedWhereNothingTells) {
  const testing_support::TemporaryDirectory empty;
  EXPECT_EQ(host_memory(empty.path()).left(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace lockstep
