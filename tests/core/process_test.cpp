// What belongs to one process, and where a program finds its modules.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/module_file.h>
#include <lockstep/core/process_owned.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

struct Counted {
  explicit Counted(int& count_) : count(count_) {}
  ~Counted() { ++count; }
  int& count;
};

TEST(ProcessOwned, IsDestroyedOnlyByItsProcess) {
  int destroyed = 0;
  std::shared_ptr<Counted> object = make_process_owned<Counted>(destroyed);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    object.reset();
    _exit(destroyed);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(destroyed, 0);
  object.reset();
  EXPECT_EQ(destroyed, 1);
}

TEST(CaptureScope, MayBeNested) {
  EXPECT_FALSE(is_capturing());
  {
    const CaptureScope outer;
    {
      const CaptureScope inner;
    }
    EXPECT_TRUE(is_capturing());
  }
  EXPECT_FALSE(is_capturing());
}

TEST(ModuleFile, IsInTheNamedFolderOrBesideTheProgram) {
  const testing_support::TemporaryDirectory directory;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string name = program.filename().string();
  unsetenv("LOCKSTEP_MODULE_DIR");
  EXPECT_EQ(module_file(name), program.string());
  EXPECT_EQ(module_file("no such module.so"), "no such module.so");
  setenv("LOCKSTEP_MODULE_DIR", directory.path().c_str(), 1);
  EXPECT_EQ(module_file(name), program.string()) << "it is not in the named folder";
  directory.write(name, "x");
  EXPECT_EQ(module_file(name), (directory / name).string());
  unsetenv("LOCKSTEP_MODULE_DIR");
}

}  // namespace
}  // namespace lockstep
