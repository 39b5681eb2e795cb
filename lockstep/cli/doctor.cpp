// `lockstep doctor`: what a training run will find on this machine and in this build, and what
// limited a run.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Version.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/build_commit.h>
#include <lockstep/cli/commands.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/memory.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/optim/options.h>
#include <lockstep/report/advice/advice.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/text.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/slow_precision.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// One finding: a line for people, a value for machines.
struct Finding {
  std::string key;
  std::string text;
  Json value;
};

Finding processors() {
  const std::vector<int> cpus = available_cpus();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return {"cpus", str(cpus.size(), " of ", online, " usable (", join(cpus), ")"), cpus};
}

Finding memory() {
  const HostMemory memory = host_memory();
  return {"memory",
          report::bytes_text(static_cast<double>(memory.available)) + " available of " +
              report::bytes_text(static_cast<double>(memory.total)),
          {{"total_bytes", memory.total}, {"available_bytes", memory.available}}};
}

Finding libtorch() {
  const bool cuda = at::globalContext().hasCUDART();  // true even without a GPU
  return {"libtorch",
          str(TORCH_VERSION, cuda ? ", CUDA build" : ", CPU build"),
          {{"version", TORCH_VERSION}, {"cuda_build", cuda}}};
}

// The driver's own list, which includes GPUs that a CPU build of LibTorch cannot see.
std::vector<std::string> gpus_of_driver() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream info(entry.path() / "information");
    for (std::string line; std::getline(info, line);) {
      const auto value = line.find_first_not_of(" \t", line.find(':') + 1);
      if (line.rfind("Model:", 0) == 0 && value != std::string::npos)
        names.push_back(line.substr(value));
    }
  }
  return names;
}

Finding gpus() {
  const auto usable = static_cast<int>(torch::cuda::device_count());
  const std::vector<std::string> present = gpus_of_driver();
  std::string text = present.empty() && usable == 0 ? "none" : str(usable, " usable by LibTorch");
  if (!present.empty()) text += str(", present: ", join(present));
  return {"gpus", text, {{"usable", usable}, {"present", present}}};
}

Finding backends() {
  std::vector<std::string> names;
  for (const std::string& name :
       nccl_available() ? comm::backend_names() : comm::host_backend_names()) {
    if (name != "auto") names.push_back(name);
  }
  return {"backends", join(names) + (nccl_available() ? "" : " (this build has no NCCL)"), names};
}

// The names that an option takes, from the table that checks the option.
Finding choices(const std::string& key, const std::vector<std::string>& names) {
  return {key, join(names), names};
}

Finding loaders() {
  Finding finding = choices("loaders", loader_engine_names());
  // A build with NCCL is one with CUDA.
  finding.text += nccl_available() ? " (dali needs NVIDIA DALI)"
                                   : " (this build has no cuda; dali needs NVIDIA DALI)";
  return finding;
}

// The precisions that slow a run down on this machine's processor, with the reasons.
Finding slow() {
  const std::vector<std::string> names = train::slow_precisions();
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += "; ";
    text += "--precision " + name + ": " + train::slow_precision_text(parse_precision(name), names);
  }
  return {"slow", text, Json::object({{"precisions", names}})};
}

Finding data(const std::string& name) {
  try {
    if (const auto folder = find_data({.name = name, .may_download = false})) {
      return {name, folder->string(), folder->string()};
    }
    return {name, "not found here", nullptr};
  } catch (const Error& error) {
    return {name, error_line(error), nullptr};
  }
}

Finding launcher() {
  try {
    const auto worker = worker_environment();
    if (!worker) return {"launcher", "none: ranks are started with --nproc-per-node", nullptr};
    return {
        "launcher",
        str(worker->source, ": rank ", worker->rank, " of ", worker->world_size),
        {{"source", worker->source}, {"rank", worker->rank}, {"world_size", worker->world_size}}};
  } catch (const ConfigError& error) {
    return {"launcher", str("unusable: ", error_line(error)), nullptr};
  }
}

std::vector<Finding> examine() {
  std::vector<Finding> findings = {{"lockstep", LOCKSTEP_VERSION, LOCKSTEP_VERSION},
                                   {"commit", build_commit(), build_commit()},
                                   {"processor", cpu_model_name(), cpu_model_name()},
                                   processors(),
                                   {"simd", simd_name(), simd_name()},
                                   memory(),
                                   libtorch(),
                                   gpus(),
                                   backends(),
                                   choices("strategies", strategy_names()),
                                   choices("optimizers", optimizer_names()),
                                   loaders(),
                                   choices("precisions", precision_names()),
                                   slow(),
                                   launcher()};
  for (const std::string& name : known_data_names()) findings.push_back(data(name));
  return findings;
}

void run_doctor(const std::string& json_file) {
  Json json;
  for (const Finding& finding : examine()) {
    json[finding.key] = finding.value;
    std::cout << finding.key << std::string(12 - finding.key.size(), ' ') << finding.text << '\n';
  }
  report::flush_output(std::cout);
  if (!json_file.empty()) report::write_text_file(json_file, bench::json_text(json));
}

struct DoctorArguments {
  std::string run;
  std::string json;
};

// Examines what limited the run in a folder.
void examine_run(const DoctorArguments& arguments) {
  const report::RunFacts facts = report::read_run_facts(arguments.run);
  const std::vector<report::Advice> advice = report::advise(facts);
  std::cout << report::advice_text(facts, advice);
  report::flush_output(std::cout);
  if (arguments.json.empty()) return;
  Json json = Json::array();
  for (const report::Advice& each : advice) {
    json.push_back({{"limit", each.limit},
                    {"share", each.share},
                    {"figures", each.figures},
                    {"option", each.option}});
  }
  report::write_text_file(arguments.json, bench::json_text(json));
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Show what this machine offers (processors, LibTorch, GPUs, data), or what limited a run");
  const auto arguments = std::make_shared<DoctorArguments>();
  command
      ->add_option("RUN", arguments->run,
                   "Run to examine, given as its folder (train --out DIR) or its record (train "
                   "--json FILE); shows what limited the run and what to try")
      ->type_name("")
      ->check(not_empty());
  command->add_option("--json", arguments->json, "Also write the findings to this JSON file")
      ->type_name("FILE")
      ->check(not_empty());
  command->callback([arguments] {
    check_output_file("doctor", "--json", arguments->json);
    if (arguments->run.empty()) return run_doctor(arguments->json);
    if (!arguments->json.empty())
      require_no_input("doctor", "--json", arguments->json, {arguments->run});
    examine_run(*arguments);
  });
}

}  // namespace lockstep::cli
