// `lockstep run --share-gpu` with a double of NCCL, which only knows its version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/cli/started_run.h>

// 0: there is no NCCL. The command runs in a child of the test, which inherits the value.
static int version_of_double = 0;

// The program exports it, so that the command finds it as it finds NCCL's own.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = version_of_double;
  return version_of_double > 0 ? 0 : 1;
}

namespace lockstep::testing_support {
namespace {

class RunThatSharesAGpu : public testing::Test {
 protected:
  void TearDown() override { version_of_double = 0; }

  static ProgramResult run_ranks(const Words& options, const Environment& environment = {}) {
    const Words program = {"sh", "-c",
                           "echo $RANK ${NCCL_HOSTID:--} ${NCCL_NET:--} ${NCCL_SOCKET_IFNAME:--} "
                           "${NCCL_MULTI_RANK_GPU_ENABLE:--} ${NCCL_NVLS_ENABLE:--} "
                           "${NCCL_MAX_CTAS:--}"};
    return run(with(with(options, {"--nproc-per-node", "2"}), program), environment);
  }
};

TEST_F(RunThatSharesAGpu, MakesHostsOfRanksForOldVersions) {
  version_of_double = 22809;
  const ProgramResult result = run_ranks({"--share-gpu"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(lines_of(result.out),
            (Words{"0 lockstep-rank-0 Socket =lo - - -", "1 lockstep-rank-1 Socket =lo - - -"}));
  EXPECT_EQ(result.err,
            "note: --share-gpu: ranks on one GPU take turns and exchange data through sockets; "
            "such a run is for correctness, not for speed\n");
}

// Loopback does not lead to the ranks of other hosts. Host 0 says the note for all.
TEST_F(RunThatSharesAGpu, LeavesTheWayBetweenHostsToNccl) {
  version_of_double = 22809;
  const auto on_host = [](const char* host) {
    return run_ranks({"--share-gpu", "--nnodes", "2", "--node-rank", host, "--master-addr",
                      "127.0.0.1", "--master-port", "29511"});
  };
  const ProgramResult second = on_host("1");
  EXPECT_EQ(lines_of(second.out),
            (Words{"2 lockstep-rank-2 - - - - -", "3 lockstep-rank-3 - - - - -"}));
  EXPECT_EQ(second.err, "");
  const ProgramResult first = on_host("0");
  EXPECT_EQ(lines_of(first.out),
            (Words{"0 lockstep-rank-0 - - - - -", "1 lockstep-rank-1 - - - - -"}));
  EXPECT_THAT(first.err, testing::StartsWith("note: --share-gpu: ranks on one GPU take turns"));
}

TEST_F(RunThatSharesAGpu, KeepsTheUsersVariables) {
  version_of_double = 22809;
  const ProgramResult result =
      run_ranks({"--share-gpu"}, {{"NCCL_NET", "IB"}, {"NCCL_HOSTID", "mine"}});
  EXPECT_EQ(lines_of(result.out), (Words{"0 mine IB =lo - - -", "1 mine IB =lo - - -"}));
}

TEST_F(RunThatSharesAGpu, AsksNewVersions) {
  version_of_double = 23007;
  const ProgramResult result = run_ranks({"--share-gpu"}, {{"NCCL_MAX_CTAS", "4"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(lines_of(result.out), (Words{"0 - - - 1 0 4", "1 - - - 1 0 4"}));
  EXPECT_EQ(result.err,
            "note: --share-gpu: ranks on one GPU take turns; such a run is for correctness, not "
            "for speed\n");
}

TEST_F(RunThatSharesAGpu, SetsNothingUnlessAsked) {
  version_of_double = 23007;
  const ProgramResult result = run_ranks({});
  EXPECT_EQ(lines_of(result.out), (Words{"0 - - - - - -", "1 - - - - - -"}));
  EXPECT_EQ(result.err, "");
}

TEST_F(RunThatSharesAGpu, IsRefusedWhereThereIsNoWay) {
  ProgramResult result = run_ranks({"--share-gpu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: run: --share-gpu needs NCCL 2.28 or newer, which only a build with CUDA has, "
            "and this is none; remove it, or use a newer CUDA build of LibTorch\n");
  version_of_double = 22705;
  result = run_ranks({"--share-gpu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "error: run: --share-gpu needs NCCL 2.28 or newer, but this is NCCL 2.27.5; remove "
            "it, or use a newer CUDA build of LibTorch\n");
}

}  // namespace
}  // namespace lockstep::testing_support
