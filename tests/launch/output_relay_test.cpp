// The way of the ranks' output through the launcher: whole lines, labels, readers that are slow or
// gone, and text that was still in a buffer when the ranks were forked.
#include <lockstep/launch/launcher.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <tests/launch/channel.h>
#include <tests/launch/few_descriptors.h>
#include <tests/support/captured_log.h>
#include <tests/support/process_usage.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::launch {
namespace {

using testing_support::CapturedLog;
using testing_support::Channel;
using testing_support::descriptor_count;
using testing_support::FewDescriptors;

// Takes this process's standard output, and its standard error if asked for, into a pipe.
class OutputPipe {
 public:
  explicit OutputPipe(bool takes_errors = false) : takes_errors_(takes_errors) {
    std::fflush(nullptr);
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    own_out_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    own_err_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(ends_[1], STDOUT_FILENO);
    if (takes_errors_) dup2(ends_[1], STDERR_FILENO);
  }
  ~OutputPipe() {
    close_writers();
    close_reader();
  }
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  void close_reader() { close_end(ends_[0]); }

  // Gives this process its own output back.
  void close_writers() {
    if (ends_[1] < 0) return;
    std::fflush(nullptr);
    dup2(own_out_, STDOUT_FILENO);
    if (takes_errors_) dup2(own_err_, STDERR_FILENO);
    for (int* const end : {&ends_[1], &own_out_, &own_err_}) close_end(*end);
  }

  // All that was written, once the last writer has closed the pipe. Waits ten seconds for it.
  std::string text() {
    close_writers();
    std::string all;
    std::array<char, 4096> buffer{};
    pollfd ready{ends_[0], POLLIN, 0};
    while (poll(&ready, 1, 10'000) > 0) {
      const ssize_t count = read(ends_[0], buffer.data(), buffer.size());
      if (count <= 0) return all;
      all.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return all + "... and no end within ten seconds";
  }

 private:
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }

  bool takes_errors_;
  std::array<int, 2> ends_{-1, -1};
  int own_out_ = -1;
  int own_err_ = -1;
};

void write_out(std::string_view text, int fd = STDOUT_FILENO) {
  if (write(fd, text.data(), text.size()) != std::ssize(text)) throw Error("cannot write");
}

// One pipe for both streams keeps their order.
TEST(OutputRelay, KeepsTheOrderOfTwoStreamsInOneFile) {
  OutputPipe output(/*takes_errors=*/true);
  const LaunchResult result = launch_ranks({.rank_output = RankOutput::kLabelled}, [] {
    for (int i = 0; i < 100; ++i) {
      write_out(str("out ", i, "\n"), STDOUT_FILENO);
      write_out(str("err ", i, "\n"), STDERR_FILENO);
    }
  });
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += str("[rank 0] out ", i, "\n[rank 0] err ", i, "\n");
  EXPECT_EQ(output.text(), expected);
  EXPECT_EQ(result.message, "");
}

// How many descriptors each of two ranks has, in lines such as "0: 9".
std::vector<std::string> descriptors_of_ranks(RankOutput rank_output) {
  const Channel counts;
  const LaunchResult result = launch_ranks({.nproc_per_node = 2, .rank_output = rank_output}, [&] {
    counts.write_line(str(environment_string("RANK").value(), ": ", descriptor_count()));
  });
  EXPECT_EQ(result.message, "");
  std::vector<std::string> lines = {counts.read_line(), counts.read_line()};
  std::sort(lines.begin(), lines.end());
  return lines;
}

// A rank that held the pipe of another would hide from the relay that the other has ended.
TEST(OutputRelay, LeavesARankNoDescriptorButItsOutput) {
  OutputPipe output;
  const std::size_t before = descriptor_count();
  const auto without_relay = descriptors_of_ranks(RankOutput::kInherited);
  for (const RankOutput rank_output : {RankOutput::kWholeLines, RankOutput::kLabelled}) {
    EXPECT_EQ(descriptors_of_ranks(rank_output), without_relay);
    EXPECT_EQ(descriptor_count(), before) << "the launcher keeps none";
  }
}

TEST(OutputRelay, LabelsRanksByTheirNumbersInTheWholeJob) {
  OutputPipe output;
  const LaunchOptions options = {.nproc_per_node = 2,
                                 .master_port = 29511,
                                 .nnodes = 2,
                                 .node_rank = 1,
                                 .rank_output = RankOutput::kLabelled};
  const LaunchResult result = launch_ranks(
      options, [] { write_out("local " + environment_string("LOCAL_RANK").value() + "\n"); });
  const std::string text = output.text();
  EXPECT_EQ(result.message, "");
  EXPECT_THAT(text, ::testing::AnyOf("[rank 2] local 0\n[rank 3] local 1\n",
                                     "[rank 3] local 1\n[rank 2] local 0\n"));
}

constexpr int kLines = 200;

// Exits with 0 if `output` has as many whole lines of each rank.
[[noreturn]] void check_lines(OutputPipe& output) {
  std::istringstream lines(output.text());
  std::array<int, 2> found{};
  for (std::string line; std::getline(lines, line);) {
    const auto rank = static_cast<std::size_t>(line.starts_with('a') ? 0 : 1);
    if (line != std::string(999, rank == 0 ? 'a' : 'b')) _exit(1);
    ++found[rank];
  }
  _exit(found == std::array{kLines, kLines} ? 0 : 2);
}

// Another process may have made the output non-blocking: the relay then waits for its reader. Ranks
// write their lines in pieces.
TEST(OutputRelay, WritesWholeLinesIntoANonBlockingPipe) {
  OutputPipe output;
  fcntl(STDOUT_FILENO, F_SETPIPE_SZ, 4096);
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
  const pid_t reader = fork();
  ASSERT_GE(reader, 0);
  if (reader == 0) check_lines(output);
  const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [] {
    const bool is_first = environment_string("RANK") == "0";
    std::string text;
    for (int i = 0; i < kLines; ++i) text += std::string(999, is_first ? 'a' : 'b') + "\n";
    for (std::size_t at = 0; at < text.size(); at += 700) write_out(text.substr(at, 700));
  });
  output.close_writers();
  EXPECT_EQ(result.message, "");
  int status = -1;
  ASSERT_EQ(waitpid(reader, &status, 0), reader);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: a torn line, 2: another number of lines";
}

// As without the relay, a rank must not run for hours after `| head` has ended.
TEST(OutputRelay, EndsARankWhoseOutputHasNoReader) {
  OutputPipe output;
  output.close_reader();
  const LaunchResult result = launch_ranks({.rank_output = RankOutput::kLabelled}, [] {
    std::signal(SIGPIPE, SIG_DFL);
    for (;;) write_out("line\n");
  });
  output.close_writers();
  EXPECT_THAT(result.message,
              ::testing::StartsWith("rank 0 was killed by signal 13 (Broken pipe)"));
}

// The run ends with its ranks. What a process that they left behind writes later still arrives.
TEST(OutputRelay, GoesOnForAProcessInTheBackground) {
  OutputPipe output;
  Channel go;
  const LaunchResult result = launch_ranks({.rank_output = RankOutput::kLabelled}, [&] {
    if (fork() == 0) {
      go.read_line();
      write_out("late\n");
      _exit(0);
    }
    write_out("early\n");
  });
  go.write_line("the run has ended");
  EXPECT_EQ(output.text(), "[rank 0] early\n[rank 0] late\n");
  EXPECT_EQ(result.message, "");
}

TEST(OutputRelay, IsGivenUpWhereTheSystemRefusesItsPipes) {
  constexpr int kRanks = 8;
  OutputPipe output;
  const std::size_t before = descriptor_count();
  const CapturedLog log;
  LaunchResult result;
  {
    // Enough for the ranks, which need one each, but not for two ends of a pipe for each of them.
    const FewDescriptors few(kRanks + 6);
    result = launch_ranks({.nproc_per_node = kRanks}, [] { write_out("x\n"); });
  }
  EXPECT_EQ(descriptor_count(), before);
  std::string expected;
  for (int rank = 0; rank < kRanks; ++rank) expected += "x\n";
  EXPECT_EQ(output.text(), expected);
  EXPECT_EQ(result.message, "");
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(
                               "warning: the ranks' output is not merged, and their lines may "
                               "be torn: Too many open files"));
}

// The buffers of a program's own file, and of std::cout where it does not share that of stdout.
TEST(Launcher, WritesTextInOtherBuffersOnce) {
  const testing_support::TemporaryDirectory folder;
  const pid_t pid = fork();
  if (pid == 0) {
    std::ios::sync_with_stdio(false);
    dup2(open((folder / "out").c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
    std::FILE* const file = std::fopen((folder / "file").c_str(), "w");
    const auto write_both = [&](const char* text) {
      std::cout << text;
      std::fputs(text, file);
    };
    write_both("launcher ");
    const LaunchResult result = launch_ranks({}, [&] { write_both("rank"); });
    std::cout.flush();
    std::fclose(file);
    _exit(result.exit_code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(testing_support::read_text(folder / "out"), "launcher rank");
  EXPECT_EQ(testing_support::read_text(folder / "file"), "launcher rank");
}

}  // namespace
}  // namespace lockstep::launch
