#include <lockstep/cli/launched_world.h>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::testing_support {
namespace {

TEST(LaunchedWorld, SaysWhoContradictsTheOption) {
  struct Case {
    const char* source;
    std::optional<std::string> run_id;
    std::optional<int> nproc_per_node;
    const char* error;
  };
  const Case cases[] = {
      {"torchrun", "none", 2, ""},
      {"torchrun", "none", std::nullopt, ""},
      {"torchrun", "none", 4,
       "train: --nproc-per-node 4 contradicts torchrun, which started 2 on this host; remove "
       "--nproc-per-node"},
      {"torchrun", std::nullopt, 4,
       "train: --nproc-per-node 4 contradicts the environment (WORLD_SIZE=6), which means 2 on "
       "this "
       "host; remove --nproc-per-node, or unset RANK and WORLD_SIZE"},
      {"Slurm", std::nullopt, 4,
       "train: --nproc-per-node 4 contradicts Slurm, which started 2 on this host; remove "
       "--nproc-per-node"},
  };
  for (const Case& expected : cases) {
    ScopedEnvironment environment;
    environment.set("TORCHELASTIC_RUN_ID", expected.run_id);
    WorkerEnvironment worker;
    worker.source = expected.source;
    worker.world_size = 6;
    worker.local_world_size = 2;
    std::string error;
    try {
      cli::check_nproc_per_node("train", expected.nproc_per_node, worker);
    } catch (const ConfigError& caught) {
      error = caught.what();
    }
    EXPECT_EQ(error, expected.error);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
