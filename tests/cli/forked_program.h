// Runs the program in a fork of the test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <lockstep/cli/commands.h>
#include <tests/cli/program_run.h>

namespace lockstep::testing_support {

/// Does what run_to_end() does, but calls the program's main function in the child instead of
/// executing the file: a start of the program takes 0.4 s, in which LibTorch is loaded, and its end
/// another 0.15 s. Libraries have read their variables already, such as OMP_NUM_THREADS: tests that
/// set these use run_to_end().
inline ProgramResult run_forked(const std::vector<std::string>& command,
                                const Environment& environment = {},
                                const std::function<void()>& before = {}) {
  return run_to_end(command, environment, [&] {
    if (before) before();
    std::vector<const char*> words;
    for (const std::string& word : command) words.push_back(word.c_str());
    const int code = cli::run_lockstep(static_cast<int>(words.size()), words.data());
    std::cout.flush();
    std::fflush(nullptr);
    std::_Exit(code);
  });
}

}  // namespace lockstep::testing_support
