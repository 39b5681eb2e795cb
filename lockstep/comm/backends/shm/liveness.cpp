#include <lockstep/comm/backends/shm/liveness.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include <lockstep/core/error.h>

namespace lockstep::shm {

Liveness::Liveness(const std::vector<pid_t>& pids) : pids_(pids) {
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pids[rank], 0));
    if (fd < 0) {
      const int error = errno;
      for (int open : descriptors_) close(open);
      throw CommError(
          str("rank ", rank, " (process ", pids[rank], ") cannot be watched: ", errno_text(error)));
    }
    descriptors_.push_back(fd);
  }
}

Liveness::~Liveness() {
  for (int fd : descriptors_) close(fd);
}

bool Liveness::is_dead(int rank) const {
  pollfd polled{descriptors_[static_cast<std::size_t>(rank)], POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

std::vector<int> Liveness::dead_ranks() const {
  std::vector<pollfd> polled;
  for (int fd : descriptors_) polled.push_back({fd, POLLIN, 0});
  std::vector<int> dead;
  if (poll(polled.data(), polled.size(), 0) <= 0) return dead;
  for (std::size_t rank = 0; rank < polled.size(); ++rank) {
    if (polled[rank].revents != 0) dead.push_back(static_cast<int>(rank));
  }
  return dead;
}

// The state follows the program's name, which is in parentheses and may itself contain parentheses.
bool Liveness::is_stopped(int rank) const {
  std::ifstream file(str("/proc/", pids_[static_cast<std::size_t>(rank)], "/stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos || is_dead(rank)) return false;
  const char state = line[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace lockstep::shm
