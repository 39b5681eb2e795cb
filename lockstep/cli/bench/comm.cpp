// lockstep bench comm
#include <CLI/CLI.hpp>

#include <lockstep/bench/collectives/rank.h>
#include <lockstep/bench/collectives/settings.h>
#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/cli/bench/bench.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/launch/launcher.h>

namespace lockstep {
namespace {

void add_measurement_options(CLI::App& command, BenchCommArguments& to) {
  command
      .add_option(
          "--collective", to.collective,
          "all_reduce, broadcast, reduce, all_gather, gather, scatter, reduce_scatter, all_to_all, "
          "send_recv, barrier, several with commas, or all")
      ->capture_default_str();
  command
      .add_option("--algorithm", to.algorithm,
                  "Of all_reduce: auto, native, reduce-broadcast, all-to-all, ring, "
                  "halving-doubling, tree, "
                  "several with commas, or all")
      ->capture_default_str();
  command.add_option("--backend", to.backend, "auto, shm, gloo, nccl or hierarchical")
      ->capture_default_str();
  command
      .add_option("--nproc-per-node", to.nproc_per_node,
                  "Processes to start on this host (default 2)")
      ->transform(whole_number<int>());
  command.add_option(
      "--sizes", to.sizes,
      "Of the larger buffer, as in 4,64KiB,1MiB (default: 4 B to 256 MiB by factors of 4); rounded "
      "down to whole elements, as many for each rank where it is divided, at least one");
  command.add_option("--dtype", to.dtype, "PyTorch's name of the element type")
      ->capture_default_str();
  command.add_flag("--symmetric", to.symmetric, "Only in memory that the group allocates");
  command.add_flag("--private", to.private_memory, "Only in memory of each process");
  command.add_flag(
      "--beside-computing", to.beside_computing,
      "Also what all_reduce, reduce_scatter and all_gather take while each rank computes, and "
      "what they take from its computing");
  command
      .add_option("--repetitions", to.repetitions,
                  "Calls of each row (default: what fits into --seconds, from 5 to 200)")
      ->transform(whole_number<int>());
  command.add_option("--seconds", to.seconds,
                     "Time for each row (default 0.5): it ends earlier after 200 calls; "
                     "--repetitions makes more");
  command.add_option("--timeout", to.timeout_seconds, "Deadline of every wait, in seconds")
      ->capture_default_str();
  command.add_option("--json", to.json, "Also write the rows, into a folder that exists")
      ->type_name("FILE");
  command
      .add_option(
          "--trace", to.trace,
          "Also make ten calls of each row, after those that are timed, and write when each "
          "rank came and went, a file for each, for https://ui.perfetto.dev")
      ->type_name("FOLDER");
}

void add_explain_options(CLI::App& command, BenchCommArguments& to) {
  command.add_flag(
      "--explain", to.explain,
      "Run one algorithm (default: ring) with tracing and show who sent what to whom, and when");
  command.add_option("--bytes", to.bytes, "Of --explain: size of the tensor (default 1MiB)");
  command.add_option("--out", to.out, "Of --explain: draw it as SVG, in a folder that exists")
      ->type_name("FILE");
}

void run(const BenchCommArguments& arguments) {
  const BenchCommSettings settings = resolve(arguments);
  if (settings.speaks()) check_trace_folder("bench comm", settings.trace);
  if (settings.worker) return bench_comm_rank(settings);
  const OtherPrograms others;
  require_success(
      launch_ranks({.nproc_per_node = settings.world_size, .join_timeout = settings.timeout},
                   [&] { bench_comm_rank(settings); }));
  warn_of_other_programs(others);
}

}  // namespace

void add_bench_comm_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("comm", "Time collectives, or explain an all-reduce");
  const auto arguments = std::make_shared<BenchCommArguments>();
  add_measurement_options(*command, *arguments);
  add_explain_options(*command, *arguments);
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lockstep
