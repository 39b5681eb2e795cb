// A library to preload into a launcher: each process that it forks stops itself before it does
// anything else, except the launcher's first child, which relays its output.
#include <pthread.h>

#include <csignal>

namespace {

int forks = 0;

[[gnu::constructor]] void watch_forks() {
  const auto count_a_fork = [] { ++forks; };
  const auto stop_a_rank = [] {
    if (forks > 1) raise(SIGSTOP);
  };
  pthread_atfork(count_a_fork, nullptr, stop_a_rank);
}

}  // namespace
