// The variables that torchrun, Open MPI 4.1, Slurm 22.05 and Hydra were observed to set.
#include <lockstep/comm/rendezvous/slurm.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/error.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

namespace lockstep::comm {
namespace {

using Variables = std::map<std::string, std::string>;

// Replaces the whole environment for the scope of a test.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const Variables& variables) {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const auto equals = text.find('=');
      saved_[text.substr(0, equals)] = text.substr(equals + 1);
    }
    assign(variables);
  }
  ~ScopedEnvironment() { assign(saved_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  static void assign(const Variables& variables) {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables saved_;
};

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"GROUP_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "10.0.0.7"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_MCA_ess_base_jobid", "2036531201"}};
const Variables kHydra{{"PMI_RANK", "1"},
                       {"PMI_SIZE", "2"},
                       {"MPI_LOCALRANKID", "1"},
                       {"MPI_LOCALNRANKS", "2"},
                       {"PMI_PORT", "node1:34567"}};
// srun -N2 -n3, as seen by its third task
const Variables kSrun{{"SLURM_JOB_ID", "1"},           {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "2"},           {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "1"},           {"SLURM_NTASKS", "3"},
                      {"SLURM_STEP_NUM_TASKS", "3"},   {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                      {"SLURM_TASKS_PER_NODE", "2,1"}, {"SLURM_STEP_NODELIST", "n[1-2]"},
                      {"SLURM_JOB_NODELIST", "n[1-2]"}};
// srun -n2 on one node of a two-node job
const Variables kSrunOneNode = with(kSrun, {{"SLURM_PROCID", "1"},
                                            {"SLURM_LOCALID", "1"},
                                            {"SLURM_NODEID", "0"},
                                            {"SLURM_STEP_NUM_TASKS", "2"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                            {"SLURM_STEP_NODELIST", "n2"}});

struct Understood {
  const char* what;
  Variables variables;
  int rank, world_size, local_rank, local_world_size;
  std::string master_addr, source;
};

TEST(WorkerEnvironment, UnderstandsLaunchers) {
  const Understood cases[] = {
      {"torchrun", kTorchrun, 5, 8, 1, 4, "10.0.0.7", "torchrun"},
      {"by hand, one host",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1234"}},
       1,
       2,
       1,
       2,
       "localhost",
       "torchrun"},
      {"by hand, several hosts",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.1.1.1"}, {"MASTER_PORT", "1234"}},
       1,
       2,
       0,
       1,
       "10.1.1.1",
       "torchrun"},
      {"by hand, IPv6 in brackets",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "1234"}},
       1,
       2,
       1,
       2,
       "::1",
       "torchrun"},
      {"by hand, IPv4 written as IPv6",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "::ffff:127.0.0.1"},
        {"MASTER_PORT", "1234"}},
       1,
       2,
       1,
       2,
       "127.0.0.1",
       "torchrun"},
      {"srun, IPv6 in brackets", with(kSrun, {{"MASTER_ADDR", "[fd00::7]"}}), 2, 3, 0, 1, "fd00::7",
       "Slurm"},
      {"by hand, a rank of the host named",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"MASTER_ADDR", "localhost"},
        {"MASTER_PORT", "1234"}},
       1,
       2,
       1,
       2,
       "localhost",
       "torchrun"},
      {"by hand, one rank a host on one host",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"MASTER_ADDR", "localhost"},
        {"MASTER_PORT", "1234"}},
       1,
       2,
       0,
       1,
       "localhost",
       "torchrun"},
      {"srun --ntasks-per-node",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_TASKS_PER_NODE", ""},
                    {"SLURM_NTASKS_PER_NODE", "2"}}),
       2, 3, 0, 2, "n1", "Slurm"},
      {"srun on one node of which only the number is known",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_TASKS_PER_NODE", ""},
                    {"SLURM_NNODES", "1"},
                    {"SLURM_LOCALID", "2"}}),
       2, 3, 2, 3, "127.0.0.1", "Slurm"},
      {"alone", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0, 1, 0, 1, "127.0.0.1", "torchrun"},
      {"Lockstep", with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "lockstep-17"}}), 5, 8, 1, 4,
       "10.0.0.7", "lockstep"},
      {"torchrun inside srun", with(kSrun, kTorchrun), 5, 8, 1, 4, "10.0.0.7", "torchrun"},
      {"mpirun", kOpenMpi, 1, 2, 1, 2, "127.0.0.1", "Open MPI"},
      {"mpirun inside a Slurm job", with(kSrun, kOpenMpi), 1, 2, 1, 2, "127.0.0.1", "Open MPI"},
      {"mpirun on two hosts",
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"MASTER_ADDR", "a"}}),
       1, 2, 0, 1, "a", "Open MPI"},
      {"Hydra", kHydra, 1, 2, 1, 2, "127.0.0.1", "PMI"},
      {"Hydra of one rank",
       with(kHydra, {{"PMI_RANK", "0"},
                     {"PMI_SIZE", "1"},
                     {"MPI_LOCALRANKID", "0"},
                     {"MPI_LOCALNRANKS", "1"}}),
       0, 1, 0, 1, "127.0.0.1", "PMI"},
      {"Hydra inside a Slurm job", with(kSrun, kHydra), 1, 2, 1, 2, "127.0.0.1", "PMI"},
      {"mpiexec -n 1", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, 0, 1, 0, 1, "127.0.0.1", "PMI"},
      {"Hydra on two hosts",
       with(kHydra,
            {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "[fd00::7]"}}),
       1, 2, 0, 1, "fd00::7", "PMI"},
      {"srun", kSrun, 2, 3, 0, 1, "n1", "Slurm"},
      {"srun of which only the job is known",
       with(kSrun, {{"SLURM_STEP_NUM_TASKS", ""},
                    {"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_STEP_NODELIST", ""},
                    {"SLURM_JOB_NODELIST", "m[3-4]"}}),
       2, 3, 0, 1, "m3", "Slurm"},
      {"srun of which the node is not known",
       with(kSrun, {{"SLURM_NODEID", ""}, {"SLURM_LOCALID", "1"}}), 2, 3, 1, 2, "n1", "Slurm"},
      {"a step on one node, of a job on two",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_TASKS_PER_NODE", ""},
                    {"SLURM_STEP_NUM_NODES", "1"},
                    {"SLURM_NNODES", "2"},
                    {"SLURM_JOB_NUM_NODES", "2"},
                    {"SLURM_LOCALID", "2"}}),
       2, 3, 2, 3, "127.0.0.1", "Slurm"},
      {"srun in a job on one node",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_TASKS_PER_NODE", ""},
                    {"SLURM_JOB_NUM_NODES", "1"},
                    {"SLURM_LOCALID", "2"}}),
       2, 3, 2, 3, "127.0.0.1", "Slurm"},
      {"srun of which the step's list of tasks is the one that counts",
       with(kSrun, {{"SLURM_TASKS_PER_NODE", "8,8"}, {"SLURM_NTASKS_PER_NODE", "8"}}), 2, 3, 0, 1,
       "n1", "Slurm"},
      {"srun with the old name of the list of nodes",
       with(kSrun,
            {{"SLURM_STEP_NODELIST", ""}, {"SLURM_JOB_NODELIST", ""}, {"SLURM_NODELIST", "k7,k9"}}),
       2, 3, 0, 1, "k7", "Slurm"},
      {"srun --mpi=pmi2", with(kSrun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), 2, 3, 0, 1, "n1",
       "Slurm"},
      {"a step that is a part of its job", kSrunOneNode, 1, 2, 1, 2, "127.0.0.1", "Slurm"},
      {"srun with WORLD_SIZE exported", with(kSrun, {{"WORLD_SIZE", "3"}}), 2, 3, 0, 1, "n1",
       "Slurm"},
  };
  for (const Understood& expected : cases) {
    SCOPED_TRACE(expected.what);
    const ScopedEnvironment environment(expected.variables);
    const auto worker = worker_environment();
    ASSERT_TRUE(worker.has_value());
    EXPECT_EQ(worker->rank, expected.rank);
    EXPECT_EQ(worker->world_size, expected.world_size);
    EXPECT_EQ(worker->local_rank, expected.local_rank);
    EXPECT_EQ(worker->local_world_size, expected.local_world_size);
    EXPECT_EQ(worker->master_addr, expected.master_addr);
    EXPECT_EQ(worker->source, expected.source);
    EXPECT_EQ(worker->master_port > 0, expected.world_size > 1);
  }
}

TEST(WorkerEnvironment, ReadsTorchElastic) {
  const ScopedEnvironment environment(kTorchrun);
  const auto worker = worker_environment();
  EXPECT_EQ(worker->master_port, 29500);
  EXPECT_TRUE(worker->agent_store);
  EXPECT_EQ(worker->restart_count, 2);
  EXPECT_FALSE(worker->listen_fd.has_value());
}

TEST(WorkerEnvironment, NeedsNothingOfTorchElastic) {
  const ScopedEnvironment environment(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", ""},
                                                       {"TORCHELASTIC_RESTART_COUNT", ""},
                                                       {"TORCHELASTIC_USE_AGENT_STORE", ""}}));
  const auto worker = worker_environment();
  EXPECT_EQ(worker->source, "torchrun");
  EXPECT_FALSE(worker->agent_store);
  EXPECT_EQ(worker->restart_count, 0);
}

TEST(WorkerEnvironment, FindsNoLauncher) {
  const Variables batch_script{{"SLURM_JOB_ID", "2"},           {"SLURM_PROCID", "0"},
                               {"SLURM_LOCALID", "0"},          {"SLURM_NODEID", "0"},
                               {"SLURM_NTASKS", "3"},           {"SLURM_TASKS_PER_NODE", "2,1"},
                               {"SLURM_JOB_NODELIST", "n[1-2]"}};
  const Variables allocation{
      {"SLURM_JOB_ID", "3"}, {"SLURM_NTASKS", "2"}, {"SLURM_TASKS_PER_NODE", "2"}};
  const std::pair<const char*, Variables> cases[] = {
      {"nothing set", {}},
      {"a meeting point alone", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}},
      {"sbatch script", batch_script},
      {"shell of salloc", allocation},
      {"interactive step of salloc",
       with(batch_script, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}})},
      {"a step of which the task is not known",
       with(batch_script, {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", ""}})},
      {"srun --pty bash in an allocation of three",
       with(batch_script, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})},
  };
  for (const auto& [what, variables] : cases) {
    SCOPED_TRACE(what);
    const ScopedEnvironment environment(variables);
    EXPECT_FALSE(worker_environment().has_value());
  }
}

TEST(WorkerEnvironment, RefusesContradictions) {
  struct Case {
    Variables variables;
    const char* message;
  };
  const Case cases[] = {
      {{{"RANK", "0"}}, "environment variable RANK is set but WORLD_SIZE is not"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE=2 is set but RANK is not"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}),
       "RANK and WORLD_SIZE=8 are set but MASTER_PORT is not: set it to where rank 0 listens"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}),
       "RANK and WORLD_SIZE=8 are set but MASTER_ADDR is not: set it to where rank 0 listens"},
      {with(kTorchrun, {{"RANK", "8"}}),
       "RANK=8 contradicts WORLD_SIZE=8: ranks count from 0 to 7"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK must be between 0 and"},
      {with(kTorchrun, {{"RANK", "one"}}), "RANK must be a whole number, got 'one'"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE must be at least 1, got 0"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK=4 contradicts LOCAL_WORLD_SIZE=4"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE=9 contradicts WORLD_SIZE=8"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}}),
       "LOCAL_RANK is set but LOCAL_WORLD_SIZE is not"},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_WORLD_SIZE is set but LOCAL_RANK is not"},
      {with(kTorchrun, {{"LOCAL_RANK", ""}, {"MASTER_ADDR", "localhost"}}),
       "variable LOCAL_WORLD_SIZE is set but LOCAL_RANK is not: set both, or neither"},
      {with(kTorchrun, {{"RANK", "2147483648"}}),
       "RANK must be between 0 and 2147483647, got 2147483648"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""},
                    {"SLURM_TASKS_PER_NODE", ""},
                    {"SLURM_NNODES", "2"}}),
       "SLURM_TASKS_PER_NODE is not set: start it with srun"},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}),
       "MASTER_PORT must be between 1 and 65535, got 65536"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT must be between 1 and 65535, got 0"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}),
       "MASTER_PORT is not: set it to where rank 0 listens"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}),
       "MASTER_ADDR is not: set it to where rank 0 listens"},
      {with(kTorchrun, {{"RANK", "0"}, {"LOCKSTEP_LISTEN_FD", "0"}}),
       "LOCKSTEP_LISTEN_FD=0 is not a listening socket"},
      {with(kTorchrun, {{"RANK", "0"}, {"LOCKSTEP_LISTEN_FD", "1000000"}}),
       "LOCKSTEP_LISTEN_FD=1000000 is not a listening socket"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALRANKID", "0"}}, "MPI_LOCALNRANKS is not"},
      {with(kHydra, {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}),
       "MPI_LOCALNRANKS=2 contradicts PMI_SIZE=1"},
      {with(kSrun, {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_NTASKS", ""}}),
       "SLURM_PROCID is set but SLURM_NTASKS is not"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_TASKS_PER_NODE", ""}}),
       "SLURM_TASKS_PER_NODE is not set: start it with srun"},
      {with(kOpenMpi, {{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4 contradicts OMPI_COMM_WORLD_SIZE=2"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), "OMPI_COMM_WORLD_RANK=2 contradicts"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       "set MASTER_ADDR to its host name"},
      {with(kOpenMpi, {{"OMPI_MCA_ess_base_jobid", ""}}), "set MASTER_PORT"},
      {with(kHydra, {{"MPI_LOCALNRANKS", ""}}), "MPI_LOCALNRANKS is not"},
      {with(kHydra, {{"PMI_PORT", ""}}),
       "PMI started 2 ranks but gives the job no name to derive a port from: set MASTER_PORT"},
      {with(kHydra, {{"WORLD_SIZE", "3"}}),
       "WORLD_SIZE=3 contradicts PMI_SIZE=2, which PMI set: unset WORLD_SIZE, or start as many "
       "tasks"},
      {with(kHydra, {{"MPI_LOCALNRANKS", "3"}}),
       "MPI_LOCALNRANKS=3 contradicts PMI_SIZE=2: a host cannot hold more ranks than the world"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
       "OMPI_COMM_WORLD_LOCAL_RANK=2 contradicts OMPI_COMM_WORLD_LOCAL_SIZE=2"},
      {with(kSrun, {{"SLURM_STEP_NODELIST", ""}, {"SLURM_JOB_NODELIST", ""}}),
       "Slurm started 3 ranks on several hosts but does not say where rank 0 is"},
      {with(kSrun, {{"SLURM_JOB_ID", ""}}), "Slurm started 3 ranks but gives the job no name"},
      {with(kSrun, {{"SLURM_LOCALID", "1"}}), "SLURM_LOCALID=1 contradicts SLURM_TASKS_PER_NODE=1"},
      {with(kSrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT must be between 1 and 65535, got 0"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "MPI_LOCALRANKID is not"},
      {with(kSrun, {{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 contradicts SLURM_STEP_NUM_TASKS=3"},
      {with(kSrun, {{"SLURM_PROCID", "3"}}), "SLURM_PROCID=3 contradicts SLURM_STEP_NUM_TASKS=3"},
      {with(kSrun, {{"SLURM_NODEID", "2"}}),
       "SLURM_NODEID=2 contradicts SLURM_STEP_TASKS_PER_NODE=2,1, which lists 2 nodes"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "must list tasks per node"},
      {with(kSrun, {{"SLURM_STEP_NODELIST", "n["}}),
       "SLURM_STEP_NODELIST must be a Slurm node list"},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.message);
    const ScopedEnvironment environment(expected.variables);
    try {
      worker_environment();
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(expected.message));
    }
  }
}

std::uint16_t port_of(const Variables& variables) {
  const ScopedEnvironment environment(variables);
  return worker_environment()->master_port;
}

TEST(WorkerEnvironment, DerivesOnePortPerJob) {
  const std::uint16_t port = port_of(kSrun);
  EXPECT_GE(port, 15000);
  EXPECT_LT(port, 30000);
  EXPECT_EQ(port, port_of(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})));
  EXPECT_NE(port, port_of(with(kSrun, {{"SLURM_JOB_ID", "2"}})));
  EXPECT_NE(port, port_of(with(kSrun, {{"SLURM_STEP_ID", "1"}})));
  EXPECT_EQ(4711, port_of(with(kSrun, {{"MASTER_PORT", "4711"}})));
  EXPECT_EQ(65535, port_of(with(kSrun, {{"MASTER_PORT", "65535"}})));
  EXPECT_EQ(1, port_of(with(kSrun, {{"MASTER_PORT", "1"}})));
  // 15000 + FNV-1a of "1.0", of the job of Open MPI, and of the port of Hydra.
  EXPECT_EQ(18690, port);
  EXPECT_EQ(26754, port_of(kOpenMpi));
  EXPECT_EQ(19623, port_of(kHydra));
  EXPECT_EQ(21446, port_of(with(kHydra, {{"PMI_JOBID", "7"}})));
  EXPECT_EQ(21446,
            port_of(with(kOpenMpi, {{"OMPI_MCA_ess_base_jobid", ""}, {"PMIX_NAMESPACE", "7"}})));
  EXPECT_EQ(26754, port_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "7"}}))) << "the first name counts";
  EXPECT_EQ(port_of(kOpenMpi), port_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})));
}

TEST(WorkerEnvironment, InheritsAListeningSocketOnRankZeroOnly) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(fd, 1), 0);  // binds to a free port implicitly
  const Variables variables = with(kTorchrun, {{"LOCKSTEP_LISTEN_FD", std::to_string(fd)}});
  {
    const ScopedEnvironment environment(with(variables, {{"RANK", "0"}}));
    EXPECT_EQ(worker_environment()->listen_fd, fd);
  }
  {
    const ScopedEnvironment environment(variables);
    EXPECT_FALSE(worker_environment()->listen_fd.has_value());
  }
  close(fd);
}

TEST(Slurm, FindsTheFirstHost) {
  const std::pair<const char*, const char*> cases[] = {
      {"node7", "node7"},
      {"a,b", "a"},
      {"gpu[003-007,9],login1", "gpu003"},
      {"compute-0-[0,9]", "compute-0-0"},
      {"r[1-2]n[05-08]", "r1n05"},
      {"n[12]-ib", "n12-ib"},
  };
  for (const auto& [list, host] : cases) EXPECT_EQ(first_slurm_host(list, "V"), host) << list;
  for (const char* damaged : {"", ",a", "n[", "n[]", "n[-1]", "n]1", "n[1"}) {
    EXPECT_THROW(first_slurm_host(damaged, "V"), ConfigError) << damaged;
  }
}

TEST(Slurm, ExpandsTasksPerNode) {
  using testing::ElementsAre;
  EXPECT_THAT(slurm_tasks_per_node("4", "V"), ElementsAre(4));
  EXPECT_THAT(slurm_tasks_per_node("2(x3),1", "V"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(slurm_tasks_per_node("1,2(x2)", "V"), ElementsAre(1, 2, 2));
  EXPECT_EQ(slurm_tasks_per_node("1(x1048576)", "V").size(), 1048576U);
  EXPECT_EQ(slurm_tasks_per_node("1(x1048575),2", "V").back(), 2);
  for (const char* damaged :
       {"1(x1048577)", "1(x1048576),1", "1(x1048575),1(x2)", "2(x3)4", "2(3)", "", "0", "x", "2,",
        "2(x0)", "2(x3", "2(x)", "-1", "1(x999999999)", "2 "}) {
    EXPECT_THROW(slurm_tasks_per_node(damaged, "V"), ConfigError) << damaged;
  }
}

}  // namespace
}  // namespace lockstep::comm
