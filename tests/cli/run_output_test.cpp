// How the output of several ranks arrives in a file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>
#include <tests/cli/started_run.h>
#include <tests/launch/channel.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::Channel;

Words ranks(int count, const std::string& script, const Words& options = {}) {
  return with(with({"--nproc-per-node", std::to_string(count)}, options), {"sh", "-c", script});
}

// The lines in the order of their arrival.
Words lines_in_order(const std::string& text) {
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The lines of `text` that `rank` wrote: all that begin with "RANK ".
Words lines_of_rank(const std::string& text, int rank) {
  Words lines = lines_in_order(text);
  std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(str(rank, " ")); });
  return lines;
}

// A shell writes the output of each printf at once.
TEST(RunOutput, IsNotTorn) {
  constexpr int kRanks = 4;
  constexpr int kLines = 200;
  const ProgramResult result = run(ranks(
      kRanks, str("i=0; while [ $i -lt ", kLines,
                  " ]; do printf $RANK; printf ' line '; printf $i; "
                  "printf '\\n'; printf \"$RANK error \" >&2; echo $i >&2; i=$((i+1)); done")));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.left_behind, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    Words out;
    Words err;
    for (int i = 0; i < kLines; ++i) {
      out.push_back(str(rank, " line ", i));
      err.push_back(str(rank, " error ", i));
    }
    EXPECT_EQ(lines_of_rank(result.out, rank), out);
    EXPECT_EQ(lines_of_rank(result.err, rank), err);
  }
  EXPECT_EQ(lines_in_order(result.out).size(), kRanks * kLines);
}

// Both streams go to one file, as in `lockstep run ... >file 2>&1`.
TEST(RunOutput, KeepsTheOrderWithinARank) {
  StartedRun started(
      ranks(2, "for i in 1 2 3 4 5; do echo $RANK out $i; echo $RANK err $i >&2; done"), {},
      [] { dup2(STDOUT_FILENO, STDERR_FILENO); });
  const ProgramResult result = started.wait();
  for (int rank = 0; rank < 2; ++rank) {
    Words expected;
    for (int i = 1; i <= 5; ++i) {
      expected.push_back(str(rank, " out ", i));
      expected.push_back(str(rank, " err ", i));
    }
    EXPECT_EQ(lines_of_rank(result.out, rank), expected);
  }
}

TEST(RunOutput, IsLabelledOnRequest) {
  EXPECT_THAT(lines_of(run(ranks(2, "echo one; printf two", {"--label"})).out),
              ElementsAre("[rank 0] one", "[rank 0] two", "[rank 1] one", "[rank 1] two"));
  EXPECT_EQ(run(ranks(1, "echo one", {"-l"})).out, "[rank 0] one\n");
  EXPECT_EQ(run(ranks(1, "echo one >&2", {"-l"})).err, "[rank 0] one\n");
}

// Labels are ranks of the job, not of the host.
TEST(RunOutput, IsLabelledWithTheRanksOfTheJob) {
  EXPECT_THAT(lines_of(run(ranks(2, "echo one",
                                 {"--label", "--nnodes", "3", "--node-rank", "2", "--master-addr",
                                  "127.0.0.1", "--master-port", "29511"}))
                           .out),
              ElementsAre("[rank 4] one", "[rank 5] one"));
}

TEST(RunOutput, KeepsTheOrderWithinALabelledRank) {
  StartedRun started(ranks(2, "echo out 1; echo err 2 >&2; echo out 3", {"--label"}), {},
                     [] { dup2(STDOUT_FILENO, STDERR_FILENO); });
  const ProgramResult result = started.wait();
  for (const int rank : {0, 1}) {
    const std::string label = str("[rank ", rank, "] ");
    Words lines = lines_in_order(result.out);
    std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(label); });
    EXPECT_THAT(lines, ElementsAre(label + "out 1", label + "err 2", label + "out 3"));
  }
  EXPECT_EQ(result.err, "");
}

TEST(RunOutput, HasEveryByte) {
  // Two megabytes without a newline, then bytes that are special in text.
  const std::string script =
      "[ $RANK = 1 ] || { seq 300000 | tr '\\n' ' '; printf '\\000\\001\\377\\r\\n\\r\\200'; }";
  std::string expected;
  for (int i = 1; i <= 300000; ++i) expected += std::to_string(i) + " ";
  expected += std::string("\000\001\377\r\n\r\200", 7);
  EXPECT_TRUE(run(ranks(2, script)).out == expected);
}

TEST(RunOutput, HasTheLastWordsOfARank) {
  const ProgramResult result = run(ranks(
      2, "[ $RANK = 0 ] && exec sleep 100; printf 'out of luck'; printf why >&2; kill -9 $$"));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_EQ(result.out, "out of luck");
  EXPECT_THAT(result.err, HasSubstr("why"));
  EXPECT_EQ(result.left_behind, 0);
}

TEST(RunOutput, OfABackgroundProcessHoldsNothingUp) {
  const auto start = Clock::now();
  StartedRun started(ranks(2, "sleep 100 & echo words; printf more"));
  const ProgramResult result = started.wait();
  EXPECT_LT(seconds_since(start), 9) << "the whole patience of the launcher";
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  EXPECT_THAT(result.out, HasSubstr("more\nmore"));
}

TEST(RunOutput, ThatNobodyReadsStopsOnlyTheRanks) {
  Channel unread;
  Channel channel;
  StartedRun started(ranks(2, "echo ready >" + path_of(channel) + "; exec yes"), {},
                     [&] { dup2(unread.writer(), STDOUT_FILENO); });
  channel.read_line();
  channel.read_line();
  while (true) {  // until the pipe is full
    pollfd full{unread.writer(), POLLOUT, 0};
    if (poll(&full, 1, 0) == 0) break;
    usleep(1000);
  }
  kill(started.pid(), SIGTERM);
  EXPECT_EQ(started.wait().exit_code, 128 + SIGTERM);
}

// Programs that share the output may have made it non-blocking. A full pipe then refuses bytes, and
// nothing may be lost.
TEST(RunOutput, ThatDoesNotBlockIsComplete) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  constexpr int kLines = 40000;  // several times the capacity of a pipe
  StartedRun started(ranks(2, str("seq -f \"$RANK line %.0f\" ", kLines)), {},
                     [&] { dup2(ends[1], STDOUT_FILENO); });
  while (true) {  // until the pipe is full
    pollfd full{ends[1], POLLOUT, 0};
    if (poll(&full, 1, 0) == 0) break;
    usleep(1000);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  EXPECT_EQ(started.wait().exit_code, 0);
  for (int rank = 0; rank < 2; ++rank) {
    const Words lines = lines_of_rank(text, rank);
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(kLines));
    for (int i = 0; i < kLines; ++i) ASSERT_EQ(lines[i], str(rank, " line ", i + 1));
  }
}

// The reader closes the pipe, as in `lockstep run ...
// head -1`.
TEST(RunOutput, WhoseReaderIsGoneEndsTheRanks) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  StartedRun started(ranks(2, "exec yes"), {}, [&] {
    signal(SIGPIPE, SIG_DFL);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
  });
  close(ends[1]);
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(result.left_behind, 0);
}

TEST(RunOutput, StaysTheTerminals) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const std::string script =
      "[ -t 1 ] && echo out is a terminal >&3; [ -t 2 ] || echo err is none >&3";
  for (const bool label : {false, true}) {
    Channel channel;
    StartedRun started(
        ranks(2,
              "exec 3>" + path_of(channel) + "; " + (label ? "[ -t 1 ] || echo none >&3" : script),
              label ? Words{"--label"} : Words{}),
        {}, [&] {
          const int slave = open(name.c_str(), O_WRONLY | O_NOCTTY);
          dup2(slave, STDOUT_FILENO);
        });
    Words seen;
    for (int line = 0; line < (label ? 2 : 4); ++line) seen.push_back(channel.read_line());
    std::sort(seen.begin(), seen.end());
    if (label) {
      EXPECT_THAT(seen, ElementsAre("none", "none"));
    } else {
      EXPECT_THAT(seen, ElementsAre("err is none", "err is none", "out is a terminal",
                                    "out is a terminal"));
    }
    EXPECT_EQ(started.wait().exit_code, 0);
  }
  close(terminal);
}

TEST(RunOutput, IsNotMergedWhereDescriptorsAreScarce) {
  StartedRun started(ranks(20, "echo $RANK"), {}, [] {
    const rlimit few{50, 50};
    setrlimit(RLIMIT_NOFILE, &few);
  });
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(lines_of(result.out).size(), 20U);
  EXPECT_THAT(result.err, HasSubstr("the ranks' output is not merged"));
}

}  // namespace
}  // namespace lockstep::testing_support
