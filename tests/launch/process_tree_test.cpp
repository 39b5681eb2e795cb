// Lists the descendants of this process while some of them start and end.
#include <lockstep/launch/process_tree.h>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>

namespace lockstep::launch {
namespace {

using testing::Contains;
using testing::Not;

TEST(ProcessTree, HasChildrenThatRun) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[1]);
    char byte;
    static_cast<void>(!read(pipe_ends[0], &byte, 1));  // until the parent closes its end
    _exit(0);
  }
  EXPECT_THAT(running_descendants(), Contains(child));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(running_descendants(), Not(Contains(child)));
}

// A process may end between the opening and the reading of its file in /proc.
TEST(ProcessTree, CanBeReadWhileProcessesEnd) {
  const pid_t breeder = fork();
  if (breeder == 0) {
    for (const Deadline deadline(std::chrono::milliseconds(800)); !deadline.expired();) {
      for (int i = 0; i < 100; ++i) {
        if (fork() == 0) _exit(0);
      }
      while (waitpid(-1, nullptr, 0) > 0) continue;
    }
    _exit(0);
  }
  for (const Deadline deadline(std::chrono::milliseconds(700)); !deadline.expired();) {
    ASSERT_NO_THROW(running_descendants());
  }
  waitpid(breeder, nullptr, 0);
}

}  // namespace
}  // namespace lockstep::launch
