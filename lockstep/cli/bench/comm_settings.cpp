#include <lockstep/cli/bench/comm_settings.h>

#include <algorithm>

#include <lockstep/bench/sizes.h>
#include <lockstep/bench/word_list.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

constexpr double kDefaultSeconds = 0.5;
constexpr const char* kDefaultBytes = "1MiB";  // for --explain
// Up to this number of ranks, sums of ones, which check the results, are exact in every type.
constexpr int kMostCommRanks = 127;

std::vector<CallKind> resolve_collectives(const std::string& text) {
  if (text == "all") return bench::all_bench_calls();
  std::vector<std::string> names = bench::bench_call_names();
  names.emplace_back("all");
  std::vector<CallKind> collectives;
  for (const std::string& word : bench::words_of(text)) {
    OptionCheck(kBenchComm).one_of("--collective", word, names);
    if (word == "all") return bench::all_bench_calls();
    collectives.push_back(*bench::bench_call_from_name(word));
  }
  return collectives;
}

std::vector<Algorithm> resolve_algorithms(const std::string& text) {
  std::vector<std::string> names = algorithm_names();
  names.emplace_back("all");
  std::vector<Algorithm> algorithms;
  for (const std::string& word : bench::words_of(text)) {
    OptionCheck(kBenchComm).one_of("--algorithm", word, names);
    // The algorithm that kAuto chooses is already in the list.
    if (word == "all") return {all_algorithms().begin() + 1, all_algorithms().end()};
    algorithms.push_back(*algorithm_from_name(word));
  }
  return algorithms;
}

detail::DataType resolve_type(const std::string& name) {
  std::vector<std::string> names;
  for (auto type = detail::DataType::kFloat32; type < detail::DataType::kByte;
       type = static_cast<detail::DataType>(static_cast<int>(type) + 1)) {
    if (name == detail::data_type_name(type)) return type;
    names.emplace_back(detail::data_type_name(type));
  }
  OptionCheck(kBenchComm).one_of("--dtype", name, names);
  return detail::DataType::kFloat32;
}

std::vector<std::int64_t> resolve_sizes(const std::string& text) {
  if (!text.empty()) return bench::parse_sizes("bench comm: --sizes", text);
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 4; bytes <= std::int64_t{256} << 20; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

bench::ExplainSettings resolve_explain(const BenchCommArguments& arguments) {
  bench::ExplainSettings explain;
  std::vector<std::string> names;
  for (const Algorithm each : all_algorithms()) {
    if (each != Algorithm::kAuto && each != Algorithm::kNative)
      names.emplace_back(algorithm_name(each));
  }
  const std::string& name = arguments.algorithm == "auto" ? "ring" : arguments.algorithm;
  OptionCheck(kBenchComm).one_of("--algorithm of --explain", name, names);
  explain.algorithm = *algorithm_from_name(name);
  explain.bytes =
      bench::parse_bytes("bench comm: --bytes", arguments.bytes.value_or(kDefaultBytes));
  if (arguments.out) explain.svg = *arguments.out;
  return explain;
}

// Refuses options that would be ignored, because the user expects them to have an effect.
void check_combination(const BenchCommArguments& arguments,
                       const std::vector<CallKind>& collectives) {
  const auto refuse = [](bool given, const char* text) {
    if (given) throw ConfigError(str(kBenchComm, ": ", text));
  };
  if (arguments.explain) {
    refuse(arguments.json.has_value(), "--explain writes no --json; --out FILE is its picture");
    refuse(arguments.trace.has_value(), "--explain is a trace itself; remove --trace");
    refuse(collectives != std::vector{CallKind::kAllReduce},
           "--explain shows an all_reduce; remove --collective");
    refuse(!arguments.sizes.empty(), "--explain takes one size, as --bytes, not --sizes");
    refuse(arguments.symmetric || arguments.private_memory,
           "--explain uses memory of each process; remove --symmetric and --private");
    refuse(arguments.beside_computing, "--explain waits for its runs; remove --beside-computing");
    refuse(arguments.repetitions || arguments.seconds,
           "--explain makes as many runs as it needs; remove --repetitions and --seconds");
    return;
  }
  refuse(arguments.out.has_value(), "--out belongs to --explain; use --json FILE");
  refuse(arguments.bytes.has_value(), "--bytes belongs to --explain; use --sizes");
  const bool reduces =
      std::find(collectives.begin(), collectives.end(), CallKind::kAllReduce) != collectives.end();
  refuse(arguments.algorithm != "auto" && !reduces,
         "--algorithm is that of all_reduce; add all_reduce to --collective or remove --algorithm");
  refuse(arguments.repetitions && arguments.seconds,
         "--repetitions and --seconds both say how many calls are made; give one");
}

}  // namespace

bench::BenchCommSettings resolve(const BenchCommArguments& arguments) {
  bench::BenchCommSettings settings;
  const OptionCheck check(kBenchComm);
  settings.collectives = resolve_collectives(arguments.collective);
  check.one_of("--backend", arguments.backend, comm::backend_names());
  settings.backend = arguments.backend;
  settings.worker = worker_environment();
  settings.world_size =
      resolve_world_size(kBenchComm, arguments.nproc_per_node, settings.worker, kMostCommRanks);
  settings.processors = static_cast<int>(available_cpus().size());
  settings.sizes = resolve_sizes(arguments.sizes);
  settings.type = resolve_type(arguments.dtype);
  settings.beside_computing = arguments.beside_computing;
  const bool has_symmetric_memory = comm::named_backend(settings.backend).has_symmetric_memory;
  if (!has_symmetric_memory && arguments.symmetric && !arguments.private_memory) {
    throw ConfigError(
        str("bench comm: --symmetric: backend ", settings.backend, " has no symmetric memory"));
  }
  if (arguments.symmetric != arguments.private_memory) {
    settings.symmetric = arguments.symmetric;
    settings.private_memory = arguments.private_memory;
  }
  if (arguments.repetitions) {
    check.in_range("--repetitions", *arguments.repetitions, 1, 1e6);
    settings.repetitions = *arguments.repetitions;
  }
  settings.seconds = arguments.seconds.value_or(kDefaultSeconds);
  check.in_range("--seconds", settings.seconds, 0.001, 1e5);
  settings.timeout = resolve_timeout(kBenchComm, arguments.timeout_seconds);
  if (arguments.explain) {
    settings.explain = resolve_explain(arguments);
  } else {
    settings.algorithms = resolve_algorithms(arguments.algorithm);
  }
  check_combination(arguments, settings.collectives);
  if (arguments.json) settings.json = *arguments.json;
  if (arguments.trace) settings.trace = *arguments.trace;
  if (settings.speaks()) {
    check_output_file(kBenchComm, "--json", settings.json);
    if (settings.explain) check_output_file(kBenchComm, "--out", settings.explain->svg);
  }
  return settings;
}

}  // namespace lockstep::cli
