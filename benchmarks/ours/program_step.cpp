// Measures a training step of an exported program, for program_table.py.
//
// Usage: program_step NET.pt2 INPUTS.pt SECONDS THREADS [no-in-place] [channels-last] [prepared]
//
// INPUTS.pt has the arguments by their names. The loss is the mean square of the first output. A
// step is zero_grad, forward, backward and SGD with momentum. With `prepared` the process is a rank
// as `lockstep train` prepares it, which keeps freed memory. Prints the median milliseconds of a
// step, the same without the optimizer, and the seconds of loading.
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/program/program.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

constexpr int kWarmUp = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Choices {
  lockstep::ProgramOptions program{};
  bool is_prepared = false;
};

Choices choices_of(const std::vector<std::string>& words) {
  Choices choices;
  for (const std::string& word : words) {
    if (word != "no-in-place" && word != "channels-last" && word != "prepared") {
      throw lockstep::ConfigError("unknown option '" + word + "'");
    }
    choices.program.in_place &= word != "no-in-place";
    choices.program.channels_last |= word == "channels-last";
    choices.is_prepared |= word == "prepared";
  }
  return choices;
}

void run(int argc, char** argv) {
  const Choices choices = choices_of({argv + 5, argv + argc});
  const int threads = std::atoi(argv[4]);
  if (choices.is_prepared) lockstep::launch::prepare_rank(0, 1, threads);
  at::set_num_threads(threads);
  const auto begin = lockstep::Clock::now();
  lockstep::Program net(argv[1], choices.program);
  const double loading = lockstep::seconds_since(begin);
  lockstep::NamedInputs inputs;
  for (const auto& [name, tensor] : lockstep::load_state_dict_file(argv[2])) inputs[name] = tensor;
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 1e-4, .momentum = 0.9});
  std::vector<double> steps, passes;
  const auto start = lockstep::Clock::now();
  for (int i = 0; lockstep::seconds_since(start) < std::atof(argv[3]) || i <= 2 * kWarmUp; ++i) {
    const auto step = lockstep::Clock::now();
    optimizer.zero_grad();
    net->forward(inputs).first_tensor().square().mean().backward();
    const double pass = lockstep::seconds_since(step);
    optimizer.step();
    if (i < kWarmUp) continue;
    steps.push_back(1e3 * lockstep::seconds_since(step));
    passes.push_back(1e3 * pass);
  }
  std::printf("%.5f %.5f %.3f\n", median(steps), median(passes), loading);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr,
                 "usage: program_step NET.pt2 INPUTS.pt SECONDS THREADS [no-in-place] "
                 "[channels-last] [prepared]\n");
    return 2;
  }
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::first_line(error).c_str());
    return 1;
  }
}
