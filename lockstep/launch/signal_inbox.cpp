#include <lockstep/launch/signal_inbox.h>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <lockstep/core/error.h>

namespace lockstep::launch {
namespace {

// Marks a signal forwarded by another inbox; the lowest bit says whether a terminal sent it.
constexpr int kPassedOn = 0x10c5ed0;

bool is_from_terminal(const signalfd_siginfo& info) {
  return info.ssi_code == SI_KERNEL ||
         (info.ssi_code == SI_QUEUE && info.ssi_int == (kPassedOn | 1));
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

std::string signal_text(int signal) { return str("signal ", signal, " (", strsignal(signal), ")"); }

SignalInbox::SignalInbox() {
  // If SIGCHLD were ignored, the kernel would reap the ranks and discard their exit codes.
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &former_child_action_);

  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&wanted, signal);
  }
  pthread_sigmask(SIG_BLOCK, &wanted, &former_mask_);
  fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) {
    const int error = errno;
    restore_in_child();
    throw Error(str("cannot receive signals through a descriptor: ", errno_text(error)));
  }
}

SignalInbox::~SignalInbox() {
  // A second Ctrl-C that arrived meanwhile must not take effect when signals are unblocked.
  while (next(Milliseconds(0))) {
  }
  restore_in_child();
}

void SignalInbox::restore_in_child() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  sigaction(SIGCHLD, &former_child_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

void SignalInbox::pass_on(const ReceivedSignal& signal, pid_t process) {
  sigval value{};
  value.sival_int = kPassedOn | (signal.from_terminal ? 1 : 0);
  // The kernel queues a limited number of values; a plain signal always arrives.
  if (sigqueue(process, signal.number, value) != 0) kill(process, signal.number);
}

std::optional<ReceivedSignal> SignalInbox::next(Milliseconds timeout) {
  const bool forever = timeout.count() < 0;
  const Deadline deadline(timeout);
  while (true) {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof(info)) == sizeof(info)) {
      return ReceivedSignal{static_cast<int>(info.ssi_signo), is_from_terminal(info)};
    }
    const auto left = std::chrono::ceil<Milliseconds>(deadline.remaining());
    if (!forever && left.count() == 0) return std::nullopt;
    pollfd ready{fd_, POLLIN, 0};
    poll(&ready, 1, forever ? -1 : static_cast<int>(left.count()));
  }
}

}  // namespace lockstep::launch
