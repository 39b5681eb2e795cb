// The handlers of signals that ask a run to end, and what is left of them.
#include <lockstep/cli/train/stop_on_signal.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""s;

bool has_default_action(int number) {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

// While it lives, standard error is a pipe without room, so that its writers wait.
class FullStandardError {
 public:
  FullStandardError() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_.data()), 0);
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string text(4096, '.');
    while (write(ends_[1], text.data(), text.size()) > 0) continue;
    while (write(ends_[1], text.data(), 1) > 0) continue;
    fcntl(ends_[1], F_SETFL, 0);
    dup2(ends_[1], STDERR_FILENO);
  }
  ~FullStandardError() {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }
  FullStandardError(const FullStandardError&) = delete;
  FullStandardError& operator=(const FullStandardError&) = delete;

  // Makes room for the writers.
  void drain() const {
    std::array<char, 4096> text{};
    pollfd end{.fd = ends_[0], .events = POLLIN, .revents = 0};
    while (poll(&end, 1, 0) > 0 && read(ends_[0], text.data(), text.size()) > 0) continue;
  }

 private:
  int before_;
  std::array<int, 2> ends_{};
};

TEST(StopOnSignals, SetTheRequestAndLeaveNothingBehind) {
  StopRequest request;
  {
    const StopOnSignal handlers(request, {.patience = 100s});
    EXPECT_FALSE(has_default_action(SIGTERM));
    EXPECT_FALSE(request.requested());
    raise(SIGTERM);
    EXPECT_EQ(request.signal(), SIGTERM);
    const unsigned left = alarm(100);
    EXPECT_GT(left, 0U) << "the time to save";
    EXPECT_LE(left, 100U);
  }
  EXPECT_EQ(alarm(0), 0U);
  for (const int number : {SIGINT, SIGTERM, SIGALRM}) {
    EXPECT_TRUE(has_default_action(number)) << number;
  }
}

// The alarm would end the program long after its run, and the request is gone by then.
TEST(StopOnSignals, WaitForAHandlerThatAnotherThreadRuns) {
  StopRequest request;
  FullStandardError full;
  auto handlers = std::make_unique<StopOnSignal>(
      request, StopOnSignal::Options{.speaks = true, .patience = 100s});
  std::thread signalled([] { raise(SIGTERM); });
  while (!request.requested()) std::this_thread::yield();  // now it waits to write its line
  std::thread ending([&] { handlers.reset(); });
  while (!has_default_action(SIGTERM)) std::this_thread::yield();
  while (!has_default_action(SIGINT)) std::this_thread::yield();
  full.drain();
  signalled.join();
  ending.join();
  EXPECT_EQ(alarm(0), 0U);
}

}  // namespace
}  // namespace lockstep::cli
