#include <lockstep/launch/guardian.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/launch/failure_report.h>
#include <lockstep/launch/process_tree.h>

namespace lockstep::launch {
namespace {

// Another thread of the program may take SIGCHLD; then the next poll detects the end.
constexpr Milliseconds kGuardLookInterval{200};
// After SIGKILL the wait is only for the kernel's clean-up.
constexpr Milliseconds kDescendantsKillTimeout{1000};

// The guardian's result for the launcher, in memory that both map.
class ResultSlot {
 public:
  ResultSlot() {
    void* const memory =
        mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(str("cannot share memory with the guardian of the ranks: ", errno_text(errno)));
    }
    content_ = new (memory) Content;
  }
  ~ResultSlot() { munmap(content_, sizeof(Content)); }
  ResultSlot(const ResultSlot&) = delete;
  ResultSlot& operator=(const ResultSlot&) = delete;

  void store(const LaunchResult& result) {
    content_->exit_code = result.exit_code;
    content_->failed_rank = result.failed_rank;
    content_->interrupted_by = result.interrupted_by;
    content_->message.store(result.message);
    content_->details.store(result.details);
    content_->state = State::kResult;
  }
  void store(const FailureReport& failure) {
    content_->exit_code = failure.exit_code;
    content_->message.store(failure.text);
    content_->state = State::kException;
  }
  bool is_empty() const { return content_->state == State::kEmpty; }

  LaunchResult take() const {
    const std::string message = content_->message.text();
    if (content_->state == State::kException) {
      if (content_->exit_code == 2) throw ConfigError(message);
      throw Error(message);
    }
    LaunchResult result;
    result.exit_code = content_->exit_code;
    result.failed_rank = content_->failed_rank;
    result.interrupted_by = content_->interrupted_by;
    result.message = message;
    result.details = content_->details.text();
    return result;
  }

 private:
  enum class State { kEmpty, kResult, kException };
  // Truncated if it does not fit: a rank's report is at most half as long.
  struct Text {
    std::size_t size = 0;
    char characters[64 * 1024];

    void store(std::string_view text) {
      size = std::min(text.size(), sizeof(characters));
      std::memcpy(characters, text.data(), size);
    }
    std::string text() const { return {characters, size}; }
  };
  struct Content {
    State state = State::kEmpty;
    int exit_code = 1;
    int failed_rank = -1;
    int interrupted_by = 0;
    Text message;
    Text details;
  };

  Content* content_;
};

[[noreturn]] void run_guardian(pid_t launcher, ResultSlot& slot,
                               const std::function<LaunchResult(pid_t)>& supervise) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // Has a name of its own, so that `killall lockstep` or `pkill lockstep` does not kill both at
  // once.
  prctl(PR_SET_NAME, "rank-guardian");
  setpgid(0, 0);
  try {
    slot.store(supervise(launcher));
  } catch (...) {
    slot.store(describe_failure(std::current_exception()));
  }
  _exit(0);
}

std::vector<pid_t> running_descendants_but(pid_t spared) {
  std::vector<pid_t> running = running_descendants();
  std::erase(running, spared);
  return running;
}

void kill_descendants(SignalInbox& inbox, pid_t spared) {
  const Deadline deadline(kDescendantsKillTimeout);
  for (auto running = running_descendants_but(spared); !running.empty() && !deadline.expired();
       running = running_descendants_but(spared)) {
    for (const pid_t process : running) kill(process, SIGKILL);
    inbox.next(Milliseconds(20));
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  }
}

LaunchResult describe_lost_guardian(int wait_status) {
  const int signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  LaunchResult result;
  result.exit_code = signal != 0 ? 128 + signal : 1;
  result.message =
      str("the process between the launcher and the ranks ",
          signal != 0 ? str("was killed by signal ", signal, " (", strsignal(signal), ")")
                      : std::string("ended without a result"),
          ", so all ranks were ended; start the job again");
  return result;
}

}  // namespace

LaunchResult run_guarded(SignalInbox& inbox, OutputRelay& relay,
                         const std::function<LaunchResult(pid_t launcher)>& supervise) {
  ResultSlot slot;
  const OrphanKeeper orphans(true);
  const pid_t launcher = getpid();
  const pid_t guardian = fork();
  if (guardian < 0) {
    throw Error(str("cannot start the process that looks after the ranks: ", errno_text(errno)));
  }
  if (guardian == 0) run_guardian(launcher, slot, supervise);
  relay.close_pipes();  // only the guardian passes them to the ranks
  int status = 0;
  while (waitpid(guardian, &status, WNOHANG) == 0) {
    const auto signal = inbox.next(kGuardLookInterval);
    if (signal && signal->number != SIGCHLD) SignalInbox::pass_on(*signal, guardian);
  }
  if (!slot.is_empty()) return slot.take();
  kill_descendants(inbox, relay.process());
  return describe_lost_guardian(status);
}

}  // namespace lockstep::launch
