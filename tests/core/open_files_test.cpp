#include <lockstep/core/open_files.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

rlimit open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

// Each test runs in a separate process, so its limits affect no other test.
TEST(OpenFiles, RaisesTheLimitAsFarAsItMay) {
  const rlimit low{32, 64};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  require_open_files(20, "the test");
  EXPECT_EQ(open_files().rlim_cur, 32U) << "enough already";
  require_open_files(48, "the test");
  EXPECT_EQ(open_files().rlim_cur, 48U);
  EXPECT_EQ(testing_support::message_of<ConfigError>([] { require_open_files(65, "the test"); }),
            "the test needs 65 open files, but this process may have 48; raise the limit "
            "(ulimit -n 65)");
  EXPECT_EQ(open_files().rlim_cur, 48U);
}

}  // namespace
}  // namespace lockstep
