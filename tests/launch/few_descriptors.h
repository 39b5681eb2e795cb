// Limits how many files, pipes and sockets a test's process may open, to simulate a host that
// refuses more of them.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

namespace lockstep::testing_support {

/// Leaves this process, and its children, `count` descriptors to open until it is destroyed.
class FewDescriptors {
 public:
  explicit FewDescriptors(int count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 0;
    for (int free = 0; free < count; ++few.rlim_cur) {
      free += fcntl(static_cast<int>(few.rlim_cur), F_GETFD) < 0 ? 1 : 0;
    }
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace lockstep::testing_support
