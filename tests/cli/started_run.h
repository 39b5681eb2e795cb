// Starts `lockstep run` in a child of the test, without LibTorch.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/program.h>
#include <lockstep/core/strings.h>
#include <tests/cli/program_run.h>
#include <tests/launch/channel.h>

namespace lockstep::testing_support {

using Words = std::vector<std::string>;

// Unsets variables in the tests' environment that would change the results.
inline void forget_surroundings() {
  for (const char* name : {"LOCKSTEP_SECRET", "OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID"}) {
    unsetenv(name);
  }
}

inline int run_lockstep(const Words& words) {
  std::vector<const char*> arguments = {"lockstep", "run"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return cli::run_program(static_cast<int>(arguments.size()), arguments.data(), "lockstep 1.2",
                          {&cli::add_run_command}, std::cout, std::cerr);
}

class StartedRun : public ProgramRun {
 public:
  explicit StartedRun(
      const Words& words, const Environment& environment = {},
      const std::function<void()>& prepare = [] {})
      : ProgramRun({}, {}, [&] {
          prepare();
          forget_surroundings();
          for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
          _exit(run_lockstep(words));
        }) {}
};

inline ProgramResult run(const Words& words, const Environment& environment = {}) {
  return StartedRun(words, environment).wait();
}

/// The lines of `text`, sorted.
inline Words lines_of(const std::string& text) {
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// `words`, then `more`.
inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The path of `channel` for shells, which cannot redirect to descriptors of two digits.
inline std::string path_of(const testing_support::Channel& channel) {
  return str("/proc/self/fd/", channel.writer());
}

}  // namespace lockstep::testing_support
