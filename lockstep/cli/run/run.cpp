// lockstep run PROGRAM [ARGS...]
#include <cstdlib>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/commands.h>
#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/run/run_settings.h>
#include <lockstep/cli/run_executable.h>
#include <lockstep/cli/short_spins.h>
#include <lockstep/core/environment.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::cli {
namespace {

CLI::Validator number_or_text(const int&) { return whole_number<int>(); }
CLI::Validator number_or_text(const std::optional<int>&) { return whole_number<int>(); }
template <class Value>
CLI::Validator number_or_text(const Value&) {
  return not_empty();
}

// Accepts torchrun's two spellings; the help shows one.
template <class Value>
void add_option(CLI::App& command, const std::string& name, Value& to, const char* help) {
  command.add_option(name, to, help)->check(not_empty())->transform(number_or_text(to));
  std::string torchruns = name;
  std::replace(torchruns.begin() + 2, torchruns.end(), '-', '_');
  if (torchruns == name) return;
  CLI::Option* const hidden = command.add_option(torchruns, to)->group("");
  hidden->check(not_empty())->transform(number_or_text(to));
}

void add_options(CLI::App& command, RunArguments& to) {
  add_option(command, "--nproc-per-node", to.nproc_per_node,
             "Processes to start on this host (default 1)");
  add_option(command, "--nnodes", to.nnodes, "Number of hosts in the job (default 1)");
  add_option(command, "--node-rank", to.node_rank, "Number of this host, from 0");
  add_option(command, "--master-addr", to.master_addr,
             "Address of host 0, where the ranks meet (default: this host)");
  add_option(command, "--master-port", to.master_port,
             "Port on host 0 where the ranks meet (default on one host: a free port)");
  add_option(command, "--threads", to.threads,
             "OMP_NUM_THREADS of each rank (default: the variable's current value, otherwise the "
             "rank's share of the processors)");
  add_option(command, "--shutdown-timeout", to.shutdown_timeout_seconds,
             "Seconds between SIGTERM and SIGKILL when the ranks are stopped because one has "
             "failed (default 5)");
  command.add_flag("--share-gpu", to.share_gpu,
                   "Set NCCL's variables so that several ranks can compute on one GPU (for "
                   "correctness, not for speed; PROGRAM chooses the GPU of each rank, such as "
                   "LOCAL_RANK modulo the number of GPUs)");
  command.add_flag("-l,--label", to.label,
                   "Prefix each line of output with its rank, as in \"[rank 1] \"");
}

struct Refused {
  const char* names;
  bool takes_value;
  const char* remedy;
};

// torchrun's options that Lockstep does not have.
const Refused kRefused[] = {
    {"--standalone", false, "remove it: a job on one host is standalone"},
    {"--no-python,--no_python", false, "remove it: PROGRAM is executed as it is"},
    {"-m,--module", false, "write python3 -m MODULE as PROGRAM"},
    {"--run-path,--run_path", false, "write python3 FILE as PROGRAM"},
    {"--rdzv-backend,--rdzv_backend", true, "hosts meet at --master-addr and --master-port"},
    {"--rdzv-endpoint,--rdzv_endpoint", true, "write --master-addr HOST --master-port PORT"},
    {"--rdzv-id,--rdzv_id", true, "remove it: --master-port tells jobs apart"},
    {"--rdzv-conf,--rdzv_conf", true, "remove it: hosts meet at --master-addr"},
    {"--max-restarts,--max_restarts", true,
     "a failed job ends: start it again, from its checkpoint"},
    {"--monitor-interval,--monitor_interval", true, "remove it: an end is noticed at once"},
    {"--start-method,--start_method", true, "remove it: PROGRAM is executed"},
    {"--event-log-handler,--event_log_handler", true, "remove it: there are no events"},
    {"--role", true, "remove it: all ranks have one role"},
    {"--log-dir,--log_dir", true, "write sh -c 'exec PROGRAM >log.$RANK 2>&1' as PROGRAM"},
    {"-r,--redirects", true, "write sh -c 'exec PROGRAM >log.$RANK 2>&1' as PROGRAM"},
    {"-t,--tee", true, "write --label, or sh -c 'PROGRAM 2>&1 | tee log.$RANK' as PROGRAM"},
    {"--local-ranks-filter,--local_ranks_filter", true, "all ranks write to the terminal"},
    {"--duplicate-stdout-filters,--duplicate_stdout_filters", true, "pipe the output through grep"},
    {"--duplicate-stderr-filters,--duplicate_stderr_filters", true, "pipe the output through grep"},
    {"--local-addr,--local_addr", true, "remove it: --master-addr says where the ranks meet"},
    {"--logs-specs,--logs_specs", true, "redirect the output of PROGRAM yourself"},
    {"--numa-binding,--numa_binding", true, "write numactl ... PROGRAM as PROGRAM"},
    {"--signals-to-handle,--signals_to_handle", true, "SIGINT, SIGTERM and SIGHUP reach the ranks"},
    {"--virtual-local-rank,--virtual_local_rank", false, "ranks choose their GPU by LOCAL_RANK"},
};

void add_refused_options(CLI::App& command) {
  for (const Refused& refused : kRefused) {
    const std::string names = refused.names;
    const std::string name = names.substr(names.find("--"));
    const std::string text =
        str("run has no ", name.substr(0, name.find(',')), " of torchrun: ", refused.remedy);
    if (refused.takes_value) {
      command
          .add_option_function<std::string>(
              names, [text](const std::string&) { throw ConfigError(text); }, "")
          ->group("");
    } else {
      command.add_flag_callback(names, [text] { throw ConfigError(text); }, "")->group("");
    }
  }
}

// PROGRAM is not an argument to CLI11, which would parse the options after it.
class RunHelp : public HelpFormat {
 public:
  std::string make_usage(const CLI::App* /*command*/, std::string name) const override {
    return str("Usage: ", name, " [OPTIONS] PROGRAM [ARGS...]\n");
  }
  std::string make_positionals(const CLI::App* /*command*/) const override {
    return str("\nPositionals:\n",
               row("PROGRAM (required)",
                   "Program to start on every rank, searched in PATH as a shell does"),
               row("ARGS", "Arguments of the program, passed on unchanged"));
  }
};

void rank_main(const RunSettings& settings) {
  const int local_rank = static_cast<int>(environment_integer("LOCAL_RANK").value_or(0));
  if (const auto threads = threads_of_rank(settings, local_rank)) {
    setenv("OMP_NUM_THREADS", std::to_string(*threads).c_str(), 1);
  }
  set_short_spins();
  if (settings.gpu_sharing) {
    nccl::share_gpu(*settings.gpu_sharing,
                    static_cast<int>(environment_integer("RANK").value_or(0)),
                    settings.launch.nnodes == 1);
  }
  execute(settings.executable, settings.command);
}

void run(RunArguments arguments, const std::vector<std::string>& words) {
  if (words.empty()) throw CLI::RequiredError("PROGRAM");
  if (words.front().starts_with('-')) throw CLI::ExtrasError("run", words);
  arguments.command = words;
  const RunSettings settings = resolve(arguments);
  if (settings.gpu_sharing && settings.launch.node_rank == 0) {
    std::cerr << note_on(*settings.gpu_sharing) << std::endl;
  }
  require_success(launch_ranks(settings.launch, [&] { rank_main(settings); }));
}

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Start a program on several ranks");
  command->formatter(std::make_shared<RunHelp>());
  command->prefix_command();  // what follows PROGRAM is passed to it
  const auto arguments = std::make_shared<RunArguments>();
  add_options(*command, *arguments);
  add_refused_options(*command);
  command->callback([arguments, command] { run(*arguments, command->remaining()); });
}

}  // namespace lockstep::cli
