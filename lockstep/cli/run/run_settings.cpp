#include <lockstep/cli/run/run_settings.h>

#include <algorithm>

#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/run_executable.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

void check_ranges(const RunArguments& arguments) {
  const OptionCheck check("run");
  check.in_range("--nproc-per-node", arguments.nproc_per_node, 1, 1024);
  check.in_range("--nnodes", arguments.nnodes, 1, 65536);
  check.in_range("--threads", arguments.threads, 0, 4096);
  check.in_range("--shutdown-timeout", arguments.shutdown_timeout_seconds, 0, 1e6);
  if (arguments.node_rank) {
    check.in_range("--node-rank", *arguments.node_rank, 0, arguments.nnodes - 1);
  }
  if (arguments.master_port) {
    // On one host, 0 chooses a free port, as without the option.
    check.in_range("--master-port", *arguments.master_port, arguments.nnodes > 1 ? 1 : 0, 65535);
  }
}

// The launchers of several hosts do not communicate: each needs all values.
void require_meeting_point(const RunArguments& arguments) {
  std::vector<std::string> missing;
  if (!arguments.node_rank) missing.emplace_back("--node-rank");
  if (!arguments.master_addr) missing.emplace_back("--master-addr");
  if (!arguments.master_port) missing.emplace_back("--master-port");
  if (missing.empty()) return;
  throw ConfigError(str("run: --nnodes ", arguments.nnodes, " needs ", join(missing),
                        ": start it on each host with its own --node-rank (0 to ",
                        arguments.nnodes - 1,
                        ") and the same --master-addr, host 0, and --master-port"));
}

}  // namespace

RunSettings resolve(const RunArguments& arguments) {
  check_ranges(arguments);
  if (arguments.nnodes > 1) require_meeting_point(arguments);
  RunSettings settings;
  settings.launch.nproc_per_node = arguments.nproc_per_node;
  settings.launch.nnodes = arguments.nnodes;
  settings.launch.node_rank = arguments.node_rank.value_or(0);
  settings.launch.master_addr = arguments.master_addr.value_or("127.0.0.1");
  settings.launch.master_port = static_cast<std::uint16_t>(arguments.master_port.value_or(0));
  settings.launch.grace =
      Milliseconds(static_cast<std::int64_t>(arguments.shutdown_timeout_seconds * 1000));
  settings.launch.ranks_exec = true;
  if (arguments.label) settings.launch.rank_output = RankOutput::kLabelled;
  if (arguments.share_gpu) {
    settings.gpu_sharing = choose_gpu_sharing("run", nccl::loaded_version());
  }
  settings.threads = arguments.threads;
  settings.command = arguments.command;
  settings.executable = find_executable(arguments.command.front());
  return settings;
}

std::optional<int> threads_of_rank(const RunSettings& settings, int local_rank) {
  if (settings.threads > 0) return settings.threads;
  if (environment_string("OMP_NUM_THREADS")) return std::nullopt;
  const std::vector<int> share =
      cpus_of_rank(available_cpus(), local_rank, settings.launch.nproc_per_node);
  return std::max(static_cast<int>(share.size()), 1);
}

}  // namespace lockstep::cli
