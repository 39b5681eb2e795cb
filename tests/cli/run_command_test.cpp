// `lockstep run` as its users see it. The command runs in a child of the test, without LibTorch.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <lockstep/core/cpu.h>
#include <lockstep/core/strings.h>
#include <tests/cli/started_run.h>
#include <tests/launch/channel.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::Channel;

TEST(RunCommand, GivesEachRankTorchrunsEnvironment) {
  const Words program = {"sh", "-c",
                         "echo $RANK $LOCAL_RANK $GROUP_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE "
                         "$GROUP_WORLD_SIZE at $MASTER_ADDR ${LOCKSTEP_LISTEN_FD:-no fd} "
                         "${TORCHELASTIC_USE_AGENT_STORE:-no agent}"};
  struct Case {
    Words options;
    Environment environment;
    Words lines;
  };
  const Words two_hosts = {"--nnodes", "2", "--node-rank", "1", "--master-port", "29511"};
  const Case cases[] = {
      {{}, {}, {"0 0 0 of 1 1 1 at 127.0.0.1 no fd no agent"}},
      {{"--nproc-per-node", "2"},
       {},
       {"0 0 0 of 2 2 1 at 127.0.0.1 no fd no agent",
        "1 1 0 of 2 2 1 at 127.0.0.1 no fd no agent"}},
      {{"--nproc_per_node=2", "--nnodes=1", "--node_rank=0", "--master_addr=localhost"},
       {},
       {"0 0 0 of 2 2 1 at localhost no fd no agent",
        "1 1 0 of 2 2 1 at localhost no fd no agent"}},
      {with(two_hosts, {"--nproc-per-node", "2", "--master-addr", "127.0.0.1"}),
       {},
       {"2 0 1 of 4 2 2 at 127.0.0.1 no fd no agent",
        "3 1 1 of 4 2 2 at 127.0.0.1 no fd no agent"}},
      {with(two_hosts, {"--master-addr", "10.0.0.7"}),
       {{"LOCKSTEP_SECRET", "one for all the hosts"}},
       {"1 0 1 of 2 1 2 at 10.0.0.7 no fd no agent"}},
      {{},
       {{"RANK", "7"}, {"WORLD_SIZE", "8"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       {"0 0 0 of 1 1 1 at 127.0.0.1 no fd no agent"}},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(join(expected.options, " "));
    const ProgramResult result = run(with(expected.options, program), expected.environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out), expected.lines);
    EXPECT_EQ(result.err, "");
  }
}

TEST(RunCommand, GivesTheJobOneSecret) {
  const Words program = {"sh", "-c", "echo ${LOCKSTEP_SECRET:-none}"};
  const Words secrets = lines_of(run(with({"--nproc-per-node", "2"}, program)).out);
  ASSERT_EQ(secrets.size(), 2U);
  EXPECT_EQ(secrets[0], secrets[1]);
  EXPECT_EQ(secrets[0].size(), 64U);
  EXPECT_NE(lines_of(run(program).out)[0], secrets[0]) << "another job";
  const Environment users = {{"LOCKSTEP_SECRET", "the user's own one"}};
  EXPECT_EQ(run(program, users).out, "the user's own one\n");
  // Each host would make a different secret.
  const Words two_hosts = {"--nnodes",      "2",         "--node-rank",   "0",
                           "--master-addr", "127.0.0.1", "--master-port", "29511"};
  EXPECT_EQ(run(with(two_hosts, program)).out, "none\n");
}

TEST(RunCommand, GivesEachRankItsShareOfTheProcessors) {
  const Words program = {"sh", "-c", "echo $OMP_NUM_THREADS"};
  const std::size_t share = std::max<std::size_t>(cpus_of_rank(available_cpus(), 1, 2).size(), 1);
  const ProgramResult result =
      run({"--nproc-per-node", "2", "sh", "-c", "[ $RANK = 0 ] || echo $OMP_NUM_THREADS"});
  EXPECT_EQ(result.out, str(share, "\n"));
  EXPECT_EQ(run(program, {{"OMP_NUM_THREADS", "5"}}).out, "5\n");
  EXPECT_EQ(run(with({"--threads", "3"}, program), {{"OMP_NUM_THREADS", "5"}}).out, "3\n");
}

TEST(RunCommand, LetsOpenMpThreadsSleepSoon) {
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) unsetenv(name);
  const Words program = {"sh", "-c", "echo $GOMP_SPINCOUNT$OMP_WAIT_POLICY"};
  EXPECT_EQ(run(program).out, "10000\n");
  EXPECT_EQ(run(program, {{"GOMP_SPINCOUNT", "7"}}).out, "7\n");
  EXPECT_EQ(run(program, {{"OMP_WAIT_POLICY", "passive"}}).out, "passive\n");
}

TEST(RunCommand, PassesArgumentsOnUnchanged) {
  struct Case {
    Words options;
    Words arguments;
  };
  const Case cases[] = {
      {{}, {"plain", "two words", "", "[1,2]", "a=b", "*"}},
      {{}, {"--nproc-per-node", "3", "--help", "--debug", "--version", "-h", "--unknown=x"}},
      {{}, {"--", "a", "--", "--b"}},
      {{"--"}, {"--", "--threads", "2"}},
      {{"--threads", "1", "--"}, {"run", "--standalone"}},
      {{"--threads=1", "--"}, {"--", "x"}},
      {{"--nproc-per-node=1", "--threads", "1", "--"}, {"--nproc-per-node=2"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(join(with(c.options, c.arguments), " "));
    const ProgramResult result = run(with(with(c.options, {"printf", "<%s>"}), c.arguments));
    std::string expected;
    for (const std::string& argument : c.arguments) expected += "<" + argument + ">";
    EXPECT_EQ(result.out, expected);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.exit_code, 0);
  }
}

TEST(RunCommand, ShowsWhereTheProgramGoes) {
  const ProgramResult result = run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Usage: lockstep run [OPTIONS] PROGRAM [ARGS...]\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex(
                              "\n  PROGRAM \\(required\\) +Program to start on every rank"));
  EXPECT_THAT(result.out, HasSubstr("--nproc-per-node"));
}

TEST(RunCommand, SaysInOneLineWhatIsWrong) {
  const TemporaryDirectory scratch;
  const auto file = [&](const char* name, const char* content, bool executable) {
    scratch.write(name, content);
    if (executable) std::filesystem::permissions(scratch / name, std::filesystem::perms::all);
    return (scratch / name).string();
  };
  const Words two_hosts = {"--nnodes", "2", "--node-rank", "1", "--master-port", "29511"};
  struct Case {
    Words words;
    int exit_code;
    std::string err;
  };
  const Case cases[] = {
      {{}, 2, "PROGRAM is required"},
      {{"--nproc-per-node", "2"}, 2, "PROGRAM is required"},
      {{(scratch / "none").string()}, 2, "run: there is no program " + (scratch / "none").string()},
      {{"lockstep-no-such-program"},
       2,
       "run: there is no program 'lockstep-no-such-program' in PATH"},
      {{scratch.path().string()},
       2,
       "run: the program " + scratch.path().string() + " is a folder"},
      {{file("data", "", false)}, 2, "run: " + (scratch / "data").string() + " cannot be executed"},
      {{file("a.py", "", false)},
       2,
       "run: " + (scratch / "a.py").string() + " cannot be executed: write python3 "},
      {{file("mute", "echo", true)}, 2, "rank 0: cannot execute " + (scratch / "mute").string()},
      {{file("lost", "#!/no/where\n", true)}, 2, "rank 0: cannot execute"},
      {{"--nproc-per-node", "0", "true"}, 2, "run: --nproc-per-node must be from 1 to 1024"},
      {{"--nproc-per-node", "auto", "true"},
       2,
       "--nproc-per-node: must be a whole number, got 'auto'"},
      {{"--nnodes", "1:4", "true"}, 2, "--nnodes: must be a whole number, got '1:4'"},
      {{"--nnodes", "2", "true"},
       2,
       "run: --nnodes 2 needs --node-rank, --master-addr, --master-port"},
      {{"--nnodes", "2", "--node-rank", "2", "true"}, 2, "run: --node-rank must be from 0 to 1"},
      {with(two_hosts, {"--master-addr", "10.0.0.7", "true"}), 2,
       "whoever reaches the meeting point 10.0.0.7:29511 could join this job"},
      {{"--master-addr", "192.0.2.1", "true"}, 2, "the ranks cannot meet at 192.0.2.1"},
      {{"--master-addr", "2001:db8::1", "true"}, 2, "the ranks cannot meet at [2001:db8::1]:"},
      {{"--nproc-per-nod", "2", "true"},
       2,
       "unknown option '--nproc-per-nod' of lockstep run; did you mean '--nproc-per-node'?"},
      {{"--nonsense", "true"}, 2, "unknown option '--nonsense' of lockstep run"},
      {{"--standalone", "true"}, 2, "run has no --standalone of torchrun: remove it"},
      {{"--no_python", "true"}, 2, "run has no --no-python of torchrun: remove it"},
      {{"--rdzv_endpoint=a:1", "true"},
       2,
       "run has no --rdzv-endpoint of torchrun: write --master"},
      {{"--max-restarts", "3", "true"}, 2, "run has no --max-restarts of torchrun"},
      {{"-m", "package"}, 2, "run has no --module of torchrun: write python3 -m"},
      {{"--nproc-per-node", "3", "sh", "-c", "[ $RANK != 1 ] || exit 7; exec sleep 100"},
       7,
       "rank 1 ended with exit code 7"},
      {{"--nproc-per-node", "3", "sh", "-c", "[ $RANK != 2 ] || kill -9 $$; exec sleep 100"},
       137,
       "rank 2 was killed by signal 9 (Killed)"},
      {with(two_hosts, {"--master-addr", "localhost", "sh", "-c", "exit 3"}), 3,
       "rank 1 ended with exit code 3"},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(join(expected.words, " "));
    const ProgramResult result = run(expected.words);
    EXPECT_EQ(result.exit_code, expected.exit_code);
    EXPECT_THAT(result.err, StartsWith("error: " + expected.err));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.left_behind, 0);
  }
}

TEST(RunCommand, RefusesNumbersOutsideOfTheirRanges) {
  const Words two_hosts = {"--nnodes", "2", "--master-addr", "localhost"};
  const std::pair<Words, const char*> cases[] = {
      {{"--nproc-per-node", "1025"}, "--nproc-per-node must be from 1 to 1024, got 1025"},
      {{"--nnodes", "0"}, "--nnodes must be from 1 to 65536, got 0"},
      {{"--node-rank", "1"}, "--node-rank must be from 0 to 0, got 1"},
      {{"--node-rank", "-1"}, "--node-rank must be from 0 to 0, got -1"},
      {{"--threads", "-1"}, "--threads must be from 0 to 4096, got -1"},
      {{"--threads", "4097"}, "--threads must be from 0 to 4096, got 4097"},
      {{"--shutdown-timeout", "-0.5"}, "--shutdown-timeout must be from 0 to "},
      {{"--master-port", "65536"}, "--master-port must be from 0 to 65535, got 65536"},
      {{"--master-port", "-1"}, "--master-port must be from 0 to 65535, got -1"},
      {{"--master_port", "65536"}, "--master-port must be from 0 to 65535, got 65536"},
      {{"--nproc_per_node", "0"}, "--nproc-per-node must be from 1 to 1024, got 0"},
      {{"--node_rank", "1"}, "--node-rank must be from 0 to 0, got 1"},
      {{"--shutdown_timeout", "-1"}, "--shutdown-timeout must be from 0 to "},
      {{"--shutdown-timeout", "1000001"}, "--shutdown-timeout must be from 0 to "},
      {{"--nnodes", "65537"}, "--nnodes must be from 1 to 65536, got 65537"},
      {with(two_hosts, {"--node-rank", "0", "--master-port", "0"}),
       "--master-port must be from 1 to 65535, got 0"},
      {with(two_hosts, {"--node-rank", "0"}),
       "--nnodes 2 needs --master-port: start it on each host with its own --node-rank (0 to 1)"},
      {with(two_hosts, {"--master-port", "29511"}), "--nnodes 2 needs --node-rank: start"},
      {{"--nnodes", "2", "--node-rank", "1", "--master-port", "29511"},
       "--nnodes 2 needs --master-addr: start"},
  };
  for (const auto& [options, expected] : cases) {
    SCOPED_TRACE(join(options, " "));
    const ProgramResult result = run(with(options, {"true"}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, StartsWith(std::string("error: run: ") + expected));
  }
}

TEST(RunCommand, NamesWhatTakesThePlaceOfAnOptionOfTorchrun) {
  const std::pair<Words, const char*> cases[] = {
      {{"--run-path", "a.py"}, "--run-path of torchrun: write python3 FILE as PROGRAM"},
      {{"--rdzv_backend=c10d", "true"}, "--rdzv-backend of torchrun: hosts meet at --master-addr"},
      {{"--rdzv-id", "7", "true"}, "--rdzv-id of torchrun: remove it: --master-port tells"},
      {{"--rdzv_conf", "a=b", "true"}, "--rdzv-conf of torchrun: remove it: hosts meet at"},
      {{"--monitor-interval", "1", "true"}, "--monitor-interval of torchrun: remove it"},
      {{"--start_method=spawn", "true"}, "--start-method of torchrun: remove it"},
      {{"--role", "trainer", "true"}, "--role of torchrun: remove it: all ranks have one"},
      {{"--log-dir", "logs", "true"}, "--log-dir of torchrun: write sh -c 'exec PROGRAM >log."},
      {{"-r", "3", "true"}, "--redirects of torchrun: write sh -c"},
      {{"-t", "3", "true"}, "--tee of torchrun: write --label, or"},
      {{"--local-ranks-filter", "0", "true"}, "--local-ranks-filter of torchrun: all ranks write"},
      {{"--numa_binding", "node", "true"}, "--numa-binding of torchrun: write numactl"},
      {{"--virtual-local-rank", "true"}, "--virtual-local-rank of torchrun: ranks choose"},
  };
  for (const auto& [words, expected] : cases) {
    SCOPED_TRACE(join(words, " "));
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith(std::string("error: run has no ") + expected));
  }
}

// In all its spellings, with a value where torchrun takes one, and without a value where not.
TEST(RunCommand, KnowsAllOptionsOfTorchrunThatItDoesNotHave) {
  struct Case {
    const char* name;
    bool takes_value;
    const char* letter = "";
  };
  const Case cases[] = {{"standalone", false},
                        {"no-python", false},
                        {"module", false, "-m"},
                        {"run-path", false},
                        {"rdzv-backend", true},
                        {"rdzv-endpoint", true},
                        {"rdzv-id", true},
                        {"rdzv-conf", true},
                        {"max-restarts", true},
                        {"monitor-interval", true},
                        {"start-method", true},
                        {"event-log-handler", true},
                        {"role", true},
                        {"log-dir", true},
                        {"redirects", true, "-r"},
                        {"tee", true, "-t"},
                        {"local-ranks-filter", true},
                        {"duplicate-stdout-filters", true},
                        {"duplicate-stderr-filters", true},
                        {"local-addr", true},
                        {"logs-specs", true},
                        {"numa-binding", true},
                        {"signals-to-handle", true},
                        {"virtual-local-rank", false}};
  for (const auto& [name, takes_value, letter] : cases) {
    const std::string option = str("--", name);
    std::string underscores = option;
    std::replace(underscores.begin() + 2, underscores.end(), '-', '_');
    Words spellings = {option};
    if (underscores != option) spellings.push_back(underscores);
    if (*letter != '\0') spellings.emplace_back(letter);
    for (const std::string& spelling : spellings) {
      SCOPED_TRACE(spelling);
      Words words = {spelling};
      if (takes_value && spelling.starts_with("--")) words = {spelling + "=word", "true"};
      if (takes_value && !spelling.starts_with("--")) words = {spelling, "word", "true"};
      const ProgramResult result = run(words);
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_THAT(result.err, StartsWith(str("error: run has no ", option, " of torchrun: ")));
    }
  }
}

TEST(RunCommand, FindsProgramsAsAShellDoes) {
  const TemporaryDirectory scratch;
  const auto executable = [&](const std::string& name, const char* text) {
    scratch.write(name, str("#!/bin/sh\necho ", text, "\n"));
    std::filesystem::permissions(scratch / name, std::filesystem::perms::all);
  };
  executable("here/tool", "here");
  executable("first/tool", "first");
  scratch.write("before/tool", "without permission");
  std::filesystem::create_directories(scratch / "folder" / "tool");
  scratch.write("here/plain", "");
  scratch.write("here/script.sh", "");
  const std::string here = (scratch / "here").string();
  const auto run_here = [&](const std::string& path, const std::string& program) {
    return StartedRun({program}, {{"PATH", path}}, [&] { std::filesystem::current_path(here); })
        .wait();
  };
  const auto folders = [&](const char* name) { return (scratch / name).string() + ":"; };
  const std::string system = "/usr/bin:/bin";
  EXPECT_EQ(run_here(folders("first") + here, "tool").out, "first\n");
  EXPECT_EQ(run_here(folders("before") + folders("folder") + here, "tool").out, "here\n")
      << "past what cannot be executed";
  EXPECT_EQ(run_here(":" + folders("first") + system, "tool").out, "here\n")
      << "an empty entry is the current folder";
  EXPECT_EQ(run_here(system, "./tool").out, "here\n");
  struct Case {
    const char* program;
    std::string err;
  };
  const Case cases[] = {
      {"tool", "there is no program 'tool' in PATH; write ./tool for that in this folder"},
      {"missing", "there is no program 'missing' in PATH"},
      {"./plain", "./plain cannot be executed: it lacks execute permission (chmod +x)"},
      {"./script.sh", "./script.sh cannot be executed: write sh ./script.sh"},
  };
  for (const Case& each : cases) {
    const ProgramResult result = run_here(system, each.program);
    EXPECT_EQ(result.exit_code, 2) << each.program;
    EXPECT_EQ(result.err, str("error: run: ", each.err, "\n"));
  }
}

// All hosts of a job name it alike, without a word between them.
TEST(RunCommand, NamesTheJobAndItsPort) {
  const Words program = {"sh", "-c", "echo $TORCHELASTIC_RUN_ID $MASTER_PORT"};
  for (const char* host : {"0", "1"}) {
    EXPECT_EQ(run(with({"--nnodes", "2", "--node-rank", host, "--master-addr", "127.0.0.1",
                        "--master-port", "29511"},
                       program))
                  .out,
              "lockstep-127.0.0.1-29511 29511\n");
  }
  StartedRun alone(program);
  const std::string id = str("lockstep-", alone.pid(), " ");
  const std::string line = alone.wait().out;
  EXPECT_THAT(line, StartsWith(id));
  EXPECT_GT(std::stoi(line.substr(id.size())), 0) << "a free port";
}

// Children of the failing rank and of the other ranks, which ignore SIGTERM.
TEST(RunCommand, EndsWhatTheRanksHaveStarted) {
  Channel ready;
  Channel go;
  const std::string script = "sh -c 'trap \"\" TERM; echo ready >" + path_of(ready) +
                             "; exec sleep 100' & "
                             "[ $RANK = 0 ] && wait; read go <" +
                             path_of(go) + "; exit 4";
  StartedRun started({"--nproc-per-node", "2", "--shutdown-timeout", "0.2", "sh", "-c", script});
  ready.read_line();
  ready.read_line();
  go.write_line("go");
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "error: rank 1 ended with exit code 4\n");
  EXPECT_EQ(result.left_behind, 0);
}

TEST(RunCommand, PassesSignalsOn) {
  struct Case {
    int signal;
    const char* name;
    const char* err;
  };
  const Case cases[] = {{SIGINT, "INT", "error: interrupted by signal 2 (Interrupt)\n"},
                        {SIGTERM, "TERM", "error: interrupted by signal 15 (Terminated)\n"},
                        {SIGHUP, "HUP", "error: interrupted by signal 1 (Hangup)\n"}};
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.name);
    Channel channel;
    // Background jobs of a shell ignore SIGINT. The sleeps are short, because a signal between a
    // shell's fork and its child's exec is lost to the child.
    const std::string script =
        str("trap 'echo got ", expected.name, "; wait; exit 0' ", expected.name, "; echo ready >",
            path_of(channel), "; while :; do sleep 0.05 & wait; done");
    StartedRun started({"--nproc-per-node", "2", "sh", "-c", script});
    channel.read_line();
    channel.read_line();
    const auto start = Clock::now();
    kill(started.pid(), expected.signal);
    const ProgramResult result = started.wait();
    EXPECT_LT(seconds_since(start), 3) << "the whole --shutdown-timeout";
    EXPECT_EQ(result.exit_code, 128 + expected.signal);
    EXPECT_EQ(result.err, expected.err);
    EXPECT_EQ(result.out, str("got ", expected.name, "\ngot ", expected.name, "\n"));
    EXPECT_EQ(result.left_behind, 0);
  }
}

// A shell that ignores SIGHUP, as under nohup, cannot be asked to end by it.
TEST(RunCommand, LeavesASignalIgnoredThatItWasStartedToIgnore) {
  Channel channel;
  StartedRun started(
      {"--nproc-per-node", "2", "sh", "-c", "echo ready >" + path_of(channel) + "; exec sleep 100"},
      {}, [] { signal(SIGHUP, SIG_IGN); });
  channel.read_line();
  channel.read_line();
  kill(started.pid(), SIGHUP);
  kill(started.pid(), SIGTERM);
  EXPECT_EQ(started.wait().exit_code, 128 + SIGTERM);
}

// A terminal of which a test has the other end.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) {
      throw std::runtime_error("no terminal");
    }
    name_ = ptsname(master_);
  }
  ~Terminal() { close(master_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // In a child: makes this the terminal that it is started from.
  void become_own() const {
    setsid();
    const int slave = open(name_.c_str(), O_RDWR);  // the first terminal of a session controls it
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave, stream);
    close(slave);
  }
  void type(char key) const {
    if (write(master_, &key, 1) != 1) throw std::runtime_error("write to a terminal");
  }

 private:
  int master_;
  std::string name_;
};

// The terminal sends SIGINT to the ranks itself. They count for some time after the first, in which
// the launcher has got it, too. A process in another session does not hear of it, and is asked to
// end before it is killed.
TEST(RunCommand, LeavesCtrlCToTheTerminal) {
  const Terminal terminal;
  Channel channel;
  const std::string lines = ">" + path_of(channel);
  const std::string orphan =
      str("trap \"echo asked ", lines, "; exit\" TERM; trap \"\" INT; echo up ", lines,
          "; while :; do sleep 0.05 & wait; done");
  const std::string script = str(
      "n=0; trap 'n=$((n+1))' INT; [ $RANK = 1 ] || setsid sh -c '", orphan, "' & echo up ", lines,
      "; while [ $n = 0 ]; do sleep 0.05 & wait $!; done; "
      "for i in 1 2 3 4 5 6 7 8; do sleep 0.05 & wait $!; done; echo rank got $n ",
      lines);
  StartedRun started({"--nproc-per-node", "2", "sh", "-c", script}, {},
                     [&] { terminal.become_own(); });
  for (int line = 0; line < 3; ++line) EXPECT_EQ(channel.read_line(), "up");
  terminal.type('\x03');
  Words told;
  for (int line = 0; line < 3; ++line) told.push_back(channel.read_line());
  EXPECT_THAT(told, ::testing::ElementsAre("rank got 1", "rank got 1", "asked"));
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.left_behind, 0);
}

// Ranks that have ended leave processes behind, which have time to end by themselves.
TEST(RunCommand, AsksOrphansToEndBeforeItKillsThem) {
  Channel channel;
  const std::string lines = ">" + path_of(channel);
  const std::string orphan = str("trap \"echo asked ", lines, "; exit\" TERM; echo up ", lines,
                                 "; while :; do sleep 0.05 & wait; done");
  const std::string script =
      str("[ $RANK = 1 ] && exec sleep 100; setsid sh -c '", orphan, "' & read -r go <$GO; exit 3");
  const TemporaryDirectory folder;
  const std::string go = (folder / "go").string();
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  StartedRun started({"--nproc-per-node", "2", "sh", "-c", script}, {{"GO", go}});
  EXPECT_EQ(channel.read_line(), "up");
  const int writer = open(go.c_str(), O_WRONLY);
  EXPECT_EQ(write(writer, "go\n", 3), 3);
  close(writer);
  EXPECT_EQ(channel.read_line(), "asked");
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.left_behind, 0);
}

// Every process below the run holds the writing end of the channel.
TEST(RunCommand, LeavesNothingBehindWhenKilled) {
  struct Case {
    const char* what;
    std::string program;
    bool whole_group;
  };
  const Case cases[] = {
      {"a rank", "exec sleep 100", false},
      {"the child of a wrapper", "sleep 100 & wait", false},
      {"a child of another session", "setsid sleep 100 & wait", true},
      {"a child that ignores requests", "sh -c 'trap \"\" TERM HUP INT; sleep 100; true' & wait",
       false},
      {"a child that has lost its parent", "(setsid sleep 100 &) ; exec sleep 100", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Channel channel;
    const std::string script = "echo ready >" + path_of(channel) + "; " + c.program;
    StartedRun started({"--nproc-per-node", "2", "sh", "-c", script}, {}, [] { setpgid(0, 0); });
    channel.read_line();
    channel.read_line();
    kill(c.whole_group ? -started.pid() : started.pid(), SIGKILL);
    EXPECT_TRUE(channel.wait_for_end());
    EXPECT_EQ(started.wait().exit_code, 128 + SIGKILL);
  }
}

// The ranks' parent is not the process that the user started, and may be killed on its own.
TEST(RunCommand, EndsAllWhenTheProcessInBetweenIsKilled) {
  Channel channel;
  const std::string script = "echo $PPID >" + path_of(channel) + "; setsid sleep 100 & wait";
  StartedRun started({"--nproc-per-node", "2", "sh", "-c", script});
  const pid_t parent = std::stoi(channel.read_line());
  EXPECT_EQ(std::stoi(channel.read_line()), parent);
  ASSERT_NE(parent, started.pid());
  kill(parent, SIGKILL);
  EXPECT_TRUE(channel.wait_for_end());
  const ProgramResult result = started.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, StartsWith("error: the process between the launcher and the ranks was "
                                     "killed by signal 9 (Killed)"));
  EXPECT_EQ(result.left_behind, 0);
}

// Reading from the terminal and Ctrl-C both require this.
TEST(RunCommand, KeepsTheRanksInItsProcessGroup) {
  Channel channel;
  StartedRun started(
      {"sh", "-c",
       "read -r pid name state parent group rest </proc/$$/stat; echo $group >" + path_of(channel)},
      {}, [] { setpgid(0, 0); });
  EXPECT_EQ(std::stoi(channel.read_line()), started.pid());
  EXPECT_EQ(started.wait().exit_code, 0);
}

}  // namespace
}  // namespace lockstep::testing_support
