// What is kept of the error messages of communication libraries.
#include <exception>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/backends/c10d/library_error.h>

namespace lockstep {
namespace {

struct LibraryText {
  const char* name;
  std::string text;
  std::string essence;
};

class LibraryErrors : public testing::TestWithParam<LibraryText> {};

TEST_P(LibraryErrors, AreOneLine) {
  EXPECT_EQ(c10d_adapter::essence(GetParam().text), GetParam().essence);
}

TEST(LibraryError, IsTheEssenceOfAnException) {
  EXPECT_EQ(c10d_adapter::essence(std::make_exception_ptr(std::runtime_error(
                "[/build/gloo/pair.cc:1] closed\nException raised from read at /build/x.cc"))),
            "closed");
  EXPECT_EQ(c10d_adapter::essence(std::make_exception_ptr(7)), "an error that says nothing");
}

INSTANTIATE_TEST_SUITE_P(
    All, LibraryErrors,
    testing::Values(
        LibraryText{"Gloo",
                    "[/build/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:4711. This is "
                    "typically caused by a crash",
                    "Connection closed by peer [127.0.0.1]:4711"},
        LibraryText{"NcclWithACause",
                    "NCCL error in: /build/NCCLUtils.cpp:94, unhandled system error (run with "
                    "NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n"
                    "ncclSystemError: System call failed. \nLast error:\n"
                    "Error while creating shared memory segment /dev/shm/nccl-x (size 33030528), "
                    "error: No space left on device (28)\n"
                    "Exception raised from create at /build/NCCLUtils.cpp:94 (most recent call "
                    "first):\nframe #0: c10::Error::Error",
                    "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), "
                    "NCCL version 2.28.9; last error: Error while creating shared memory segment "
                    "/dev/shm/nccl-x (size 33030528), error: No space left on device (28)"},
        LibraryText{"NcclWithoutACause",
                    "NCCL error: internal error, NCCL version 2.28.9\n"
                    "ncclInternalError: Internal check failed.\nLast error: Unknown NCCL Error\n",
                    "NCCL error: internal error, NCCL version 2.28.9; ncclInternalError: Internal "
                    "check failed."},
        LibraryText{"NcclAborted", "NCCL communicator was aborted on rank 1. ",
                    "NCCL communicator was aborted on rank 1. "},
        LibraryText{"GlooWithoutAPlace", "[/build/gloo/pair.cc:534", "[/build/gloo/pair.cc:534"},
        LibraryText{"NcclWithoutMeaning", "NCCL error in: /build/NCCLUtils.cpp:94",
                    "NCCL error in: /build/NCCLUtils.cpp:94"},
        LibraryText{"NcclWithAnEmptyCause",
                    "NCCL error in: /build/NCCLUtils.cpp:94, remote error\nncclRemoteError: A peer "
                    "has\n  failed.\nLast error:\n \n",
                    "NCCL error: remote error; ncclRemoteError: A peer has failed."},
        LibraryText{"NcclWithALongCause",
                    "NCCL error: system error\nLast error:\n" + std::string(1000, 'x'),
                    "NCCL error: system error; last error: " + std::string(400, 'x')},
        LibraryText{"CauseOfAnotherLibrary", "no memory\nLast error:\nmore", "no memory"},
        LibraryText{"Nothing", "", ""},
        LibraryText{"OtherLines", "CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA",
                    "CUDA error: out of memory"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
