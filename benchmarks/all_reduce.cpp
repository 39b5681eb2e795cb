// All-reduce between the processes of one host: our shared memory beside Gloo through LibTorch, in one
// run and in turn. `benchmarks/peers/comm_gloo.py` does Gloo's part through Python.
//
// Usage: all_reduce [--ranks 2] [--json FILE]
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include <lockstep/comm/network.h>
#include <lockstep/comm/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>

namespace {

using namespace lockstep;

struct Variant {
  const char* name;
  const char* backend;
  bool symmetric;
};
constexpr Variant kVariants[] = {
    {"shm symmetric", "shm", true}, {"shm private", "shm", false}, {"gloo", "gloo", false}};

struct Size {
  std::int64_t bytes;
  int calls;   // in one turn
  int rounds;  // turns of each variant
};
constexpr Size kSizes[] = {{4 << 10, 400, 5}, {1 << 20, 60, 5}, {25 << 20, 8, 5}};

// Each call is timed alone, between barriers of shared memory, on data that were just written: what a
// training step does, too.
void measure(ProcessGroup group, ProcessGroup barrier, torch::Tensor tensor, int calls,
             std::vector<double>& microseconds) {
  for (int call = -2; call < calls; ++call) {
    tensor.fill_(static_cast<float>(call));
    barrier.barrier();
    const auto start = Clock::now();
    group.all_reduce(tensor);
    if (call >= 0) microseconds.push_back(seconds_since(start) * 1e6);
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The floor: one rank's share of the traffic is to read all ranks' halves and to write them.
double copy_gbps() {
  const std::int64_t bytes = 64 << 20;
  auto from = torch::ones({bytes / 4}), to = torch::zeros({bytes / 4});
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<std::size_t>(bytes));
    seconds.push_back(seconds_since(start));
  }
  return 2.0 * static_cast<double>(bytes) / median(seconds) / 1e9;  // read and written
}

void run_rank(int gloo_listener, const std::string& json_file) {
  auto worker = worker_environment().value();
  torch::set_num_threads(prepare_rank(worker, 1));
  auto shm = init_process_group({.backend = "shm"});
  worker.listen_fd = gloo_listener;
  worker.master_port = bound_port(gloo_listener);
  auto gloo = init_process_group({.backend = "gloo", .environment = worker});

  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::string> lines;
  for (const Size& size : kSizes) {
    std::vector<double> times[std::size(kVariants)];
    const auto symmetric = shm.allocate({size.bytes / 4}, torch::kFloat32);
    const auto plain = torch::zeros({size.bytes / 4});
    for (int round = 0; round < size.rounds; ++round) {
      for (std::size_t v = 0; v < std::size(kVariants); ++v) {
        auto& group = std::string(kVariants[v].backend) == "shm" ? shm : gloo;
        measure(group, shm, kVariants[v].symmetric ? symmetric : plain, size.calls, times[v]);
      }
    }
    const double gloo_us = median(times[2]);
    for (std::size_t v = 0; v < std::size(kVariants); ++v) {
      const double us = median(times[v]);
      const double gbps = static_cast<double>(size.bytes) / us / 1e3;
      const auto [low, high] = std::minmax_element(times[v].begin(), times[v].end());
      rows.push_back({{"collective", "all_reduce"}, {"algorithm", "default"},
                      {"backend", kVariants[v].backend}, {"ranks", shm.size()},
                      {"dtype", "float32"}, {"bytes", size.bytes}, {"in_place", true},
                      {"symmetric", kVariants[v].symmetric}, {"median_us", us}, {"min_us", *low},
                      {"max_us", *high}, {"algbw_gbps", gbps},
                      {"busbw_gbps", gbps * 2 * (shm.size() - 1) / shm.size()}});
      std::ostringstream line;
      line << std::fixed << std::setprecision(1) << std::setw(10) << size.bytes << "  " << std::left
           << std::setw(14) << kVariants[v].name << std::right << std::setw(10) << us << std::setw(12)
           << gbps << std::setw(12) << gloo_us / us;
      lines.push_back(line.str());
    }
  }
  const double bandwidth = copy_gbps();
  if (shm.rank() == 0) {
    std::cout << "     bytes  variant         median us        GB/s     vs gloo\n";
    for (const auto& line : lines) std::cout << line << '\n';
    std::cout << "copy bandwidth of one core (read + written): " << bandwidth << " GB/s\n";
    if (!json_file.empty()) write_file_atomically(json_file, rows.dump(2) + "\n");
  }
  shm.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  std::string json_file;
  CLI::App app("All-reduce of shared memory and of Gloo, in turn");
  app.add_option("--ranks", ranks);
  app.add_option("--json", json_file);
  CLI11_PARSE(app, argc, argv);
  try {
    const int gloo_listener = listen_on("127.0.0.1", 0);
    const auto result =
        launch_ranks({.nproc_per_node = ranks}, [&] { run_rank(gloo_listener, json_file); });
    close(gloo_listener);
    if (!result.ok()) std::cerr << "error: " << result.message << '\n';
    return result.exit_code;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return exit_code(error);
  }
}
