#include <lockstep/launch/output_relay.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/launch/line_merger.h>

namespace lockstep::launch {
namespace {

constexpr std::size_t kChunkSize = 64 * 1024;
constexpr int kChunksOfAPipe = 16;  // Linux permits 1 MiB in a pipe

void close_if_open(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// Whether the ranks' output on `fd` passes through the relay. A terminal shows each rank's output
// at once, in colour; /dev/null needs no order.
bool is_merged(const LaunchOptions& options, int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return false;
  if (options.rank_output == RankOutput::kLabelled) return !S_ISCHR(status.st_mode) || isatty(fd);
  return options.rank_output == RankOutput::kWholeLines && options.nproc_per_node > 1 &&
         !S_ISCHR(status.st_mode);
}

// True for example after `program >file 2>&1`: then one pipe keeps the order of both streams.
bool is_one_file(int first, int second) {
  struct stat one{};
  struct stat other{};
  return fstat(first, &one) == 0 && fstat(second, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

std::vector<std::string> labels(const LaunchOptions& options) {
  std::vector<std::string> labels(static_cast<std::size_t>(options.nproc_per_node));
  if (options.rank_output != RankOutput::kLabelled) return labels;
  for (int rank = 0; rank < options.nproc_per_node; ++rank) {
    labels[static_cast<std::size_t>(rank)] =
        str("[rank ", options.node_rank * options.nproc_per_node + rank, "] ");
  }
  return labels;
}

struct Output {
  int fd;
  LineMerger merger;
};

struct Source {
  int fd;
  std::size_t writer;
  Output* output;
};

// Returns false if `fd` has no reader any more. Text that cannot be written for another reason, as
// on a full disk, is lost, as it would be for the rank.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {  // another process has made the caller's output non-blocking
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno != EPIPE;
    }
  }
  return true;
}

// Opens the pipes of all ranks, until the system refuses one.
struct Pipework {
  std::vector<Source> sources;
  int error = 0;

  // Returns the rank's end.
  int open_to(Output& output, std::size_t writer) {
    int ends[2];
    if (error != 0 || !is_done(pipe2(ends, O_CLOEXEC))) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    sources.push_back({ends[0], writer, &output});
    return ends[1];
  }
  // Returns the relay's end.
  int open_control(int& launchers_end) {
    int ends[2];
    if (error != 0 || !is_done(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))) return -1;
    launchers_end = ends[0];
    return ends[1];
  }

 private:
  bool is_done(int result) {
    if (result != 0) error = errno;
    return result == 0;
  }
};

// The relay process.
class Relay {
 public:
  Relay(std::vector<Source> sources, int control)
      : sources_(std::move(sources)), control_(control) {}

  [[noreturn]] void run() {
    prctl(PR_SET_NAME, "output-relay");
    std::signal(SIGPIPE, SIG_IGN);
    close_everything_else();
    while (!sources_.empty()) {
      const std::vector<pollfd> ready = wait();
      for (std::size_t i = sources_.size(); i-- > 0;) {
        if (ready[i].revents != 0) pass_on(sources_[i]);
      }
      if (ready.back().revents != 0) drain();
      std::erase_if(sources_, [](const Source& source) { return source.fd < 0; });
    }
    _exit(0);
  }

 private:
  // A lingering relay must not keep a listening socket or a file of the caller open.
  void close_everything_else() const {
    std::vector<int> kept = {STDOUT_FILENO, STDERR_FILENO, control_};
    for (const Source& source : sources_) kept.push_back(source.fd);
    DIR* const folder = opendir("/proc/self/fd");
    if (folder == nullptr) return;
    std::vector<int> others;
    while (const dirent* const entry = readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      const bool is_number = entry->d_name[0] != '.';
      if (is_number && std::find(kept.begin(), kept.end(), fd) == kept.end()) others.push_back(fd);
    }
    closedir(folder);
    for (const int fd : others) close(fd);
  }

  std::vector<pollfd> wait() const {
    std::vector<pollfd> ready;
    for (const Source& source : sources_) ready.push_back({source.fd, POLLIN, 0});
    ready.push_back({control_, POLLIN, 0});  // poll() skips -1
    while (poll(ready.data(), ready.size(), -1) < 0 && errno == EINTR) continue;
    return ready;
  }

  // Returns false if there is nothing more to read now.
  bool pass_on(Source& source) {
    if (source.fd < 0) return false;
    char buffer[kChunkSize];
    const ssize_t count = read(source.fd, buffer, sizeof(buffer));
    if (count < 0) return errno == EINTR;
    const std::string text =
        count == 0
            ? source.output->merger.flush(source.writer)
            : source.output->merger.add(source.writer, {buffer, static_cast<std::size_t>(count)});
    if (count == 0) close_if_open(source.fd);
    if (!write_all(source.output->fd, text)) close_output(*source.output);
    return count > 0;
  }

  // The output has no reader: its writers get SIGPIPE, as they would without the relay.
  void close_output(const Output& output) {
    for (Source& source : sources_) {
      if (source.output == &output) close_if_open(source.fd);
    }
  }

  // All ranks have ended. Passes on the text they have written, although a process that they left
  // in the background may still hold their pipes.
  void drain() {
    for (Source& source : sources_) {
      for (int chunk = 0; chunk < kChunksOfAPipe && pass_on(source); ++chunk) continue;
      if (source.fd >= 0 &&
          !write_all(source.output->fd, source.output->merger.flush(source.writer))) {
        close_output(*source.output);
      }
    }
    const bool goes_on = std::any_of(sources_.begin(), sources_.end(),
                                     [](const Source& source) { return source.fd >= 0; });
    if (goes_on) static_cast<void>(!send(control_, "", 1, MSG_NOSIGNAL));
    close_if_open(control_);
  }

  std::vector<Source> sources_;
  int control_;
};

}  // namespace

OutputRelay::OutputRelay(const LaunchOptions& options) {
  const bool merges_out = is_merged(options, STDOUT_FILENO);
  const bool merges_err = is_merged(options, STDERR_FILENO);
  if (!merges_out && !merges_err) return;
  const bool shared = merges_out && merges_err && is_one_file(STDOUT_FILENO, STDERR_FILENO);
  Output out{STDOUT_FILENO, LineMerger(labels(options))};
  Output err{STDERR_FILENO, LineMerger(labels(options))};
  Pipework pipes;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(options.nproc_per_node); ++rank) {
    RankPipes mine;
    if (merges_out) mine.out = pipes.open_to(out, rank);
    if (merges_err) mine.err = shared ? mine.out : pipes.open_to(err, rank);
    ranks_.push_back(mine);
  }
  const int relays_end = pipes.open_control(control_);
  if (pipes.error == 0) process_ = fork();
  if (process_ == 0) Relay(std::move(pipes.sources), relays_end).run();
  const int error = pipes.error != 0 ? pipes.error : errno;
  for (Source& source : pipes.sources) close_if_open(source.fd);
  if (relays_end >= 0) close(relays_end);
  if (process_ > 0) return;
  close_pipes();
  ranks_.clear();
  log_warning("the ranks' output is not merged, and their lines may be torn: ", errno_text(error));
}

OutputRelay::~OutputRelay() {
  close_pipes();
  close_if_open(control_);
}

void OutputRelay::connect(int local_rank) {
  if (ranks_.empty()) return;
  const RankPipes mine = ranks_[static_cast<std::size_t>(local_rank)];
  if (mine.out >= 0) dup2(mine.out, STDOUT_FILENO);
  if (mine.err >= 0) dup2(mine.err, STDERR_FILENO);
  close_pipes();
  close_if_open(control_);
}

void OutputRelay::close_pipes() {
  for (RankPipes& pipes : ranks_) {
    if (pipes.err == pipes.out) pipes.err = -1;
    close_if_open(pipes.out);
    close_if_open(pipes.err);
  }
}

void OutputRelay::drain(Milliseconds timeout) {
  close_pipes();
  if (process_ <= 0) return;
  shutdown(control_, SHUT_WR);
  const Deadline deadline(timeout);
  pollfd answer{control_, POLLIN, 0};
  int answered = 0;
  do {
    answered =
        poll(&answer, 1,
             static_cast<int>(std::chrono::ceil<Milliseconds>(deadline.remaining()).count()));
  } while (answered < 0 && errno == EINTR);
  char byte = 0;
  const bool has_ended = answered > 0 && read(control_, &byte, 1) == 0;
  waitpid(process_, nullptr, has_ended ? 0 : WNOHANG);
}

}  // namespace lockstep::launch
