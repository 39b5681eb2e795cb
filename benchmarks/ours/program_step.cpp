// Measures a training step of an exported program, for program_table.py.
//
// Usage: program_step NET.pt2 INPUTS.pt SECONDS THREADS [no-in-place] [channels-last]
//
// INPUTS.pt has the arguments by their names. The loss is the mean square of the first output. A
// step is zero_grad, forward, backward and SGD with momentum. Prints the median milliseconds of a
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
#include <lockstep/optim/optimizer.h>
#include <lockstep/program/program.h>
#include <lockstep/train/checkpoints/state_dict_file.h>

namespace {

constexpr int kWarmUp = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

lockstep::ProgramOptions options_of(const std::vector<std::string>& words) {
  lockstep::ProgramOptions options;
  for (const std::string& word : words) {
    if (word != "no-in-place" && word != "channels-last") {
      throw lockstep::ConfigError("unknown option '" + word + "'");
    }
    options.in_place &= word != "no-in-place";
    options.channels_last |= word == "channels-last";
  }
  return options;
}

void run(int argc, char** argv) {
  at::set_num_threads(std::atoi(argv[4]));
  const auto begin = lockstep::Clock::now();
  lockstep::Program net(argv[1], options_of({argv + 5, argv + argc}));
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
                 "[channels-last]\n");
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
