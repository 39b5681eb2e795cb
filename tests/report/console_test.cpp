// The exact text that is drawn during a run or a download.
#include <lockstep/report/console.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/report/advice/run_facts.h>
#include <lockstep/report/download_bar.h>
#include <lockstep/report/image_bar.h>
#include <lockstep/report/line_log.h>
#include <lockstep/report/output.h>
#include <lockstep/report/progress_bar.h>
#include <lockstep/report/summary_table.h>
#include <lockstep/report/terminal_bar.h>
#include <lockstep/report/text.h>
#include <tests/report/sample_run.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::report {
namespace {

using testing_support::sample_epoch;
using testing_support::sample_info;

const std::string kClear = kClearLine;

Terminal terminal_of(int columns) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.columns = [columns] { return columns; };
  return terminal;
}

StepReport step(std::int64_t number, double seconds, double loss = 0.5) {
  StepReport report;
  report.epoch = 3;
  report.step = number;
  report.steps_per_epoch = 100;
  report.loss = loss;
  report.images = number * 128;
  report.seconds = seconds;
  return report;
}

// The output that `call` adds.
template <class Call>
std::string written(std::ostringstream& out, Call call) {
  out.str("");
  call();
  return out.str();
}

TEST(ProgressBar, DrawsStepsAndKeepsEpochs) {
  std::ostringstream out;
  ProgressBar bar(out, terminal_of(80));
  EXPECT_EQ(written(out, [&] { bar.on_run_begin(sample_info()); }), run_line(sample_info()) + "\n");
  EXPECT_EQ(
      written(out, [&] { bar.on_step(step(25, 0.5)); }),
      kClear + "epoch  3/10 ######------------------   25%  6,400 img/s  loss 0.5000  0:02 left");
  EXPECT_EQ(
      written(out, [&] { bar.on_step(step(100, 2.0)); }),
      kClear + "epoch  3/10 ########################  100%  6,400 img/s  loss 0.5000  0:00 left");
  EXPECT_EQ(written(out, [&] { bar.on_epoch_end(sample_epoch(3)); }),
            kClear + epoch_line(sample_epoch(3), 10) + "\n");
}

TEST(ProgressBar, KeepsEvaluationsWithinAnEpoch) {
  std::ostringstream out;
  ProgressBar bar(out, terminal_of(80));
  bar.on_run_begin(sample_info());
  bar.on_step(step(25, 0.5));
  const EvaluationReport report{
      .epoch = 3, .step = 25, .steps_per_epoch = 100, .test = testing_support::sample_evaluation()};
  EXPECT_EQ(written(out, [&] { bar.on_evaluation(report); }),
            kClear + evaluation_line(report, 10) + "\n");
  EXPECT_NE(written(out, [&] { bar.on_step(step(26, 0.51)); }), "") << "the bar comes back at once";
}

TEST(ProgressBar, DrawsAtMostTenTimesASecondAndTheLastStep) {
  std::ostringstream out;
  ProgressBar bar(out, terminal_of(80));
  int drawings = 0;
  for (int number = 1; number <= 100; ++number) {
    const double seconds = number / 128.0;  // exact in binary
    if (!written(out, [&] { bar.on_step(step(number, seconds)); }).empty()) ++drawings;
  }
  // Drawn at step 1, at every 13th step after it (13 / 128 s is the first multiple above 0.1 s),
  // and at step 100.
  EXPECT_EQ(drawings, 1 + 99 / 13 + 1);
}

TEST(ProgressBar, SmoothsTheLoss) {
  std::ostringstream out;
  ProgressBar bar(out, terminal_of(80));
  bar.on_step(step(1, 0.1, 1.0));
  const std::string line = written(out, [&] { bar.on_step(step(2, 1.0, 2.0)); });
  EXPECT_NE(line.find("loss 1.1000"), std::string::npos) << line;
}

TEST(ProgressBar, FitsNarrowTerminals) {
  const std::pair<int, const char*> cases[] = {
      {200,
       "epoch  3/10 ####################--------------------   50%  6,400 img/s  loss 0.5000  0:01 "
       "left"},
      {64, "epoch  3/10 ####----   50%  6,400 img/s  loss 0.5000  0:01 left"},
      {63, "epoch  3/10   50%  6,400 img/s  loss 0.5000  0:01 left"},
      {55, "epoch  3/10   50%  6,400 img/s  loss 0.5000  0:01 left"},
      {54, "epoch  3/10 #####----   50%  6,400 img/s  loss 0.5000"},
      {45, "epoch  3/10   50%  6,400 img/s  loss 0.5000"},
      {20, "epoch  3/10   50%"},
      {12, "epoch  3/10"},
      {8, "epoch  "},
      {0, ""},
  };
  for (const auto& [columns, line] : cases) {
    std::ostringstream out;
    ProgressBar bar(out, terminal_of(columns));
    bar.on_run_begin(sample_info());
    EXPECT_EQ(written(out, [&] { bar.on_step(step(50, 1.0)); }), kClear + line) << columns;
    EXPECT_LT(std::string(line).size(), static_cast<std::size_t>(std::max(columns, 1)));
  }
}

TEST(ProgressBar, EndsAnUnfinishedLine) {
  std::ostringstream out;
  {
    ProgressBar untouched(out, terminal_of(80));
  }
  EXPECT_EQ(out.str(), "");
  {
    ProgressBar bar(out, terminal_of(80));
    bar.on_step(step(1, 0.1));
    out.str("");
  }
  EXPECT_EQ(out.str(), "\n");
}

TEST(RunListeners, KeepARecordThatReportsRead) {
  const testing_support::TemporaryDirectory folder;
  std::ostringstream out;
  const std::vector<ListenerHandle> listeners = make_run_listeners(out, {}, folder / "run");
  for (const ListenerHandle& each : listeners) each->on_run_begin(sample_info());
  for (const ListenerHandle& each : listeners) each->on_epoch_end(sample_epoch(1));
  for (const ListenerHandle& each : listeners) each->on_run_end(testing_support::sample_report(1));
  EXPECT_NE(out.str().find("mnist: ddp over shm"), std::string::npos) << out.str();
  const RunFacts facts = read_run_facts(folder / "run");
  EXPECT_EQ(facts.recipe, "mnist");
  EXPECT_EQ(facts.local_ranks, 2) << "unknown, so all ranks of the run";
}

TEST(LineLog, WritesOneLinePerEpoch) {
  std::ostringstream out;
  const auto console = make_console_listener(out, Terminal{});
  console->on_run_begin(sample_info());
  console->on_step(step(1, 0.1));
  const EvaluationReport evaluation{.epoch = 1, .test = testing_support::sample_evaluation()};
  console->on_evaluation(evaluation);
  console->on_epoch_end(sample_epoch(1));
  EXPECT_EQ(out.str(), run_line(sample_info()) + "\n" + evaluation_line(evaluation, 10) + "\n" +
                           epoch_line(sample_epoch(1), 10) + "\n");
}

TEST(Console, SaysWhyItCannotBeWritten) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  using Event = void (*)(Listener&);
  const std::pair<const char*, Event> events[] = {
      {"run begins", [](Listener& listener) { listener.on_run_begin(sample_info()); }},
      {"epoch ends", [](Listener& listener) { listener.on_epoch_end(sample_epoch(1)); }},
  };
  for (const bool interactive : {false, true}) {
    for (const auto& [name, event] : events) {
      std::ofstream full("/dev/full");
      Terminal terminal;
      terminal.interactive = interactive;
      const auto console = make_console_listener(full, terminal);
      try {
        event(*console);
        ADD_FAILURE() << "nothing was thrown when the " << name;
      } catch (const DataError& error) {
        EXPECT_STREQ(error.what(), "cannot write to standard output: No space left on device");
      }
      EXPECT_THROW(event(*console), DataError) << "the stream stays broken";
    }
  }
  std::ofstream full("/dev/full");
  SummaryTable table(full);
  EXPECT_THROW(table.on_run_end(testing_support::sample_report(1)), DataError);
}

// The reason of an earlier failure, here that of a missing file, is not the stream's.
TEST(Console, GivesNoReasonIfItDoesNotKnowOne) {
  std::ostringstream broken;
  broken.setstate(std::ios::badbit);
  errno = ENOENT;
  EXPECT_EQ(testing_support::message_of<DataError>([&] { flush_output(broken); }),
            "cannot write to standard output");
  std::ostringstream whole;
  errno = ENOENT;
  EXPECT_EQ(testing_support::message_of<DataError>([&] { flush_output(whole); }),
            "nothing was thrown");
}

TEST(DownloadBar, DrawsAndKeepsOneLinePerFile) {
  std::ostringstream out;
  Clock::time_point now{};
  DownloadBar bar(out, terminal_of(60), [&] { return now; });
  EXPECT_EQ(written(out, [&] { bar("a.gz", 1'000'000, 4'000'000); }),
            kClear + "a.gz #########---------------------------  1.0 MB of 4.0 MB");
  now += Milliseconds(99);
  EXPECT_EQ(written(out, [&] { bar("a.gz", 2'000'000, 4'000'000); }), "");
  now += Milliseconds(1);
  EXPECT_EQ(written(out, [&] { bar("a.gz", 2'000'000, 0); }), kClear + "a.gz  2.0 MB");
  EXPECT_EQ(written(out, [&] { bar("a.gz", 4'000'000, 4'000'000); }),
            kClear + "downloaded a.gz (4.0 MB)\n");
  EXPECT_EQ(written(out, [&] { bar("a.gz", 4'000'000, 4'000'000); }), "");
  EXPECT_EQ(written(out, [&] { bar("b.gz", 10, 20); }),
            kClear + "b.gz ####################--------------------  10 B of 20 B");
}

TEST(DownloadBar, EndsAnUnfinishedLine) {
  for (const std::uint64_t done : {3, 4}) {
    std::ostringstream out;
    {
      DownloadBar bar(out, terminal_of(60));
      bar("a.gz", 1, 4);
      bar("a.gz", done, 4);
      out.str("");
    }
    EXPECT_EQ(out.str(), done < 4 ? "\n" : "") << done << " bytes of 4";
  }
}

TEST(ImageBar, DrawsOneLineThatIsGoneInTheEnd) {
  std::ostringstream out;
  {
    Clock::time_point now{};
    ImageBar bar(out, terminal_of(50), "checking", 2000, [&] { return now; });
    EXPECT_EQ(written(out, [&] { bar(500); }),
              kClear + "checking #####--------------  500 of 2,000 images");
    now += Milliseconds(99);
    EXPECT_EQ(written(out, [&] { bar(1000); }), "");
    now += Milliseconds(1);
    EXPECT_NE(written(out, [&] { bar(1001); }), "");
    out.str("");
  }
  EXPECT_EQ(out.str(), kClear);
  ImageBar narrow(out, terminal_of(20), "checking", 2000);
  EXPECT_EQ(written(out, [&] { narrow(1); }), kClear + "checking  1 of 2,00");
}

TEST(ImageBar, IsQuietWithoutATerminal) {
  std::ostringstream out;
  {
    ImageBar(out, Terminal{}, "checking", 2)(1);
  }
  EXPECT_EQ(out.str(), "");
}

TEST(DownloadBar, IsQuietWithoutATerminal) {
  std::ostringstream out;
  DownloadBar bar(out, Terminal{});
  bar("a.gz", 1, 4'000'000);
  bar("a.gz", 4'000'000, 4'000'000);
  EXPECT_EQ(out.str(), "downloaded a.gz (4.0 MB)\n");
}

TEST(Terminal, DrawsBars) {
  Terminal plain = terminal_of(80);
  const std::pair<double, const char*> cases[] = {
      {0, "----"}, {0.5, "##--"}, {1, "####"}, {-1, "----"}, {7, "####"}};
  for (const auto& [fraction, bar] : cases) EXPECT_EQ(draw_bar(fraction, 4, plain), bar);
  plain.unicode = true;
  EXPECT_EQ(draw_bar(0.5, 4, plain), "━━──");
  plain.color = true;
  EXPECT_EQ(draw_bar(0.5, 4, plain), "\x1b[32m━━\x1b[0m\x1b[2m──\x1b[0m");
}

TEST(Terminal, IsDetected) {
  const int file = open("/dev/null", O_RDWR);
  EXPECT_FALSE(detect_terminal(file).interactive);
  EXPECT_FALSE(detect_terminal(file).color);
  EXPECT_EQ(detect_terminal(file).columns(), 80);
  close(file);

  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  struct Case {
    const char *term, *no_color, *language;
    bool interactive, color, unicode;
  };
  const Case cases[] = {{"xterm", "", "en_US.UTF-8", true, true, true},
                        {"xterm", "1", "C", true, false, false},
                        {"dumb", "", "C.utf8", false, false, true}};
  for (const Case& expected : cases) {
    setenv("TERM", expected.term, 1);
    setenv("NO_COLOR", expected.no_color, 1);
    setenv("LC_ALL", expected.language, 1);
    const Terminal detected = detect_terminal(terminal);
    EXPECT_EQ(detected.interactive, expected.interactive);
    EXPECT_EQ(detected.color, expected.color);
    EXPECT_EQ(detected.unicode, expected.unicode);
  }
  EXPECT_EQ(detect_terminal(terminal).columns(), 80) << "its size is not known";
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 123;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(detect_terminal(terminal).columns(), 123);
  unsetenv("TERM");
  EXPECT_FALSE(detect_terminal(terminal).interactive);
  close(terminal);
}

// The first variable that is not empty decides, as for the C library.
TEST(Terminal, KnowsTheLocaleOfItsCharacters) {
  struct Case {
    const char *all, *characters, *language;
    bool unicode;
  };
  const Case cases[] = {{"", "C.UTF-8", "C", true},   {"", "C", "C.UTF-8", false},
                        {"", "", "en_US.utf8", true}, {"C", "C.UTF-8", "C.UTF-8", false},
                        {"", "", "C", false},         {"", "", "", false}};
  for (const Case& each : cases) {
    setenv("LC_ALL", each.all, 1);
    setenv("LC_CTYPE", each.characters, 1);
    setenv("LANG", each.language, 1);
    EXPECT_EQ(detect_terminal(STDIN_FILENO).unicode, each.unicode)
        << each.all << ", " << each.characters << ", " << each.language;
  }
}

}  // namespace
}  // namespace lockstep::report
