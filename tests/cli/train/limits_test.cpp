// When memory or open files are scarce, the program either works or names the reason in one line.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/strings.h>
#include <tests/cli/program_run.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Command {
  const char* name;
  std::vector<std::string> words;
};

const Command kCommands[] = {
    {"train", {"train", "mnist", "--max-steps", "1", "--batch-size", "8", "--threads", "1"}},
    {"train_ranks",
     {"train", "mnist", "--max-steps", "1", "--batch-size", "8", "--threads", "1",
      "--nproc-per-node", "2", "--timeout", "20"}},
    {"bench_comm",
     {"bench", "comm", "--sizes", "4096", "--repetitions", "3", "--nproc-per-node", "2"}},
    {"bench_loader",
     {"bench", "loader", "--dataset", "mnist", "--seconds", "0.05", "--rounds", "1", "--threads",
      "1", "--batch-size", "16"}},
    {"data_preview", {"data", "preview", "mnist", "--out", "preview.png"}},
    {"run", {"run", "--nproc-per-node", "2", "/bin/true"}},
};

// Warnings may come first, for example that the ranks' output cannot be merged.
int lines_but_warnings(const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("warning: ") ? 0 : 1;
  return count;
}

class Limits : public ::testing::TestWithParam<Command> {
 protected:
  Limits() {
    for (const char* split : {"train", "t10k"}) write_mnist(data_, split, 64);
  }

  // Whether it succeeded.
  bool succeeds_or_says_why_not(int resource, rlim_t limit, const std::string& where) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM};
    words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
    std::replace(words.begin(), words.end(), std::string("preview.png"),
                 (data_ / "preview.png").string());
    const ProgramResult result = run_to_end(words, {{"LOCKSTEP_DATA", data_.path().string()}}, [&] {
      const rlimit no_core{0, 0};
      const rlimit both{limit, limit};
      // Files that the test's parents left open count towards the limit.
      close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
      if (setrlimit(RLIMIT_CORE, &no_core) != 0) _exit(98);
      if (setrlimit(static_cast<__rlimit_resource>(resource), &both) != 0) _exit(99);
    });
    EXPECT_EQ(result.left_behind, 0) << where;
    if (result.exit_code == 0) return true;
    EXPECT_EQ(lines_but_warnings(result.err), 1) << where << "\n" << result.err;
    // Below the size of LibTorch's code, the dynamic loader reports the error.
    if (result.exit_code == 127) {
      EXPECT_THAT(result.err, HasSubstr("error while loading shared libraries")) << where;
      return false;
    }
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(1, 2)) << where << "\n" << result.err;
    EXPECT_EQ(result.error_lines(), 1) << where << "\n" << result.err;
    for (const char* inner : {"what()", "frame #", "enforce fail", "bad_alloc", "Aborted"}) {
      EXPECT_THAT(result.err, Not(HasSubstr(inner))) << where;
    }
    return false;
  }

  TemporaryDirectory data_;
};

// Limits around the memory that the CPU version of LibTorch needs to load and start.
TEST_P(Limits, OfMemoryEndInOneLine) {
  constexpr rlim_t kMegabyte = 1'000'000;
  for (const rlim_t megabytes : {415, 470, 515}) {
    succeeds_or_says_why_not(RLIMIT_AS, megabytes * kMegabyte, str(megabytes, " MB"));
  }
}

TEST_P(Limits, OfOpenFilesEndInOneLine) {
  for (const rlim_t files : {4, 12}) {
    succeeds_or_says_why_not(RLIMIT_NOFILE, files, str(files, " files"));
  }
  EXPECT_TRUE(succeeds_or_says_why_not(RLIMIT_NOFILE, 64, "64 files"));
}

INSTANTIATE_TEST_SUITE_P(Commands, Limits, ::testing::ValuesIn(kCommands),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::testing_support
