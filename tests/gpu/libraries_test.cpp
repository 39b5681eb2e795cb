// The libraries that a program uses with the CUDA build of LibTorch. Needs no GPU: `make cuda` runs
// it.
#include <gtest/gtest.h>

#include <filesystem>
#include <system_error>

#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;

// libtorch.so of the CUDA wheels exports its own std::filesystem, whose remove_all() calls address
// 0.
TEST(Libraries, FoldersAreRemovedByTheCompilersLibrary) {
  const TemporaryDirectory folder;
  const fs::path inner = folder / "a";
  fs::create_directories(inner / "b");
  std::error_code error;
  EXPECT_EQ(fs::remove_all(inner, error), 2U);
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(fs::exists(inner));
}

}  // namespace
}  // namespace lockstep::testing_support
