// lockstep bench comm
#include <CLI/CLI.hpp>

#include <lockstep/bench/collectives/collective.h>
#include <lockstep/bench/collectives/rank.h>
#include <lockstep/bench/other_programs_note.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/comm_settings.h>
#include <lockstep/cli/bench/row_options.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/strings.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::cli {
namespace {

void add_measurement_options(CLI::App& command, BenchCommArguments& to) {
  command
      .add_option("--collective", to.collective,
                  "Collectives to time: " + join(bench::bench_call_names()) +
                      ", several separated by commas, or all")
      ->capture_default_str();
  command
      .add_option("--algorithm", to.algorithm,
                  "Algorithm of all_reduce: " + join(algorithm_names()) +
                      ", several separated by commas, or all")
      ->capture_default_str();
  command
      .add_option("--backend", to.backend, "Backend of the group: " + join(comm::backend_names()))
      ->capture_default_str();
  command
      .add_option("--nproc-per-node", to.nproc_per_node,
                  "Processes to start on this host (default 2)")
      ->transform(whole_number<int>());
  command.add_option(
      "--sizes", to.sizes,
      "Sizes of each call's larger buffer, separated by commas, such as "
      "4,64KiB,1MiB (default: 4 B to 256 MiB by factors of 4). Each size is rounded "
      "down to whole elements and, for collectives that divide the buffer among the "
      "ranks, to a multiple of the number of ranks; the minimum is one element, or one per rank");
  command.add_option("--dtype", to.dtype, "Element type, by PyTorch's name")->capture_default_str();
  command.add_flag("--symmetric", to.symmetric,
                   "Time only buffers in symmetric memory, which the group allocates");
  command.add_flag("--private", to.private_memory,
                   "Time only buffers in private memory of each process");
  command.add_flag("--beside-computing", to.beside_computing,
                   "Also time all_reduce, reduce_scatter and all_gather while the ranks compute, "
                   "and measure how much each slows the computation down");
  command
      .add_option("--repetitions", to.repetitions,
                  "Calls per row (default: as many as fit into --seconds, from 5 to 200)")
      ->transform(whole_number<int>());
  command.add_option(
      "--seconds", to.seconds,
      "Time per row, in seconds (default 0.5); a row ends earlier after 200 calls. Not "
      "with --repetitions");
  command.add_option("--timeout", to.timeout_seconds, "Timeout of every wait, in seconds")
      ->capture_default_str();
  add_rows_json_option(command, to.json);
  add_row_traces_option(command, to.trace,
                        "After the timed calls of each row, make ten more and record when each "
                        "rank enters and leaves them");
}

void add_explain_options(CLI::App& command, BenchCommArguments& to) {
  command.add_flag(
      "--explain", to.explain,
      "Trace one all-reduce algorithm (default: ring) and show which rank sends which data to "
      "which rank, and when");
  command.add_option("--bytes", to.bytes, "Size of the tensor (--explain only, default 1MiB)");
  command
      .add_option("--out", to.out,
                  "SVG file to draw the algorithm in; its folder must exist (--explain only)")
      ->type_name("FILE");
}

void run(const BenchCommArguments& arguments) {
  const bench::BenchCommSettings settings = resolve(arguments);
  if (settings.speaks()) check_trace_folder(kBenchComm, settings.trace);
  if (settings.worker) return bench::bench_comm_rank(settings);
  const OtherPrograms others;
  require_success(
      launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                   [&] { bench::bench_comm_rank(settings); }));
  bench::warn_of_other_programs(others);
}

}  // namespace

void add_bench_comm_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("comm", "Time collectives, or explain an all-reduce");
  const auto arguments = std::make_shared<BenchCommArguments>();
  add_measurement_options(*command, *arguments);
  add_explain_options(*command, *arguments);
  collect_values(*command, {"--collective", "--algorithm", "--sizes"});
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep::cli
