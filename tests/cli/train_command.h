// Runs `lockstep train` in a test, with the test's own data.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/cli/forked_program.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// A small MNIST, and an environment without the user's data.
class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    for (const char* split : {"train", "t10k"}) write_mnist(data, split, 64);
  }

  std::vector<std::string> command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  ProgramResult train(const std::vector<std::string>& arguments, Environment environment = {},
                      const std::function<void()>& before = {}) const {
    return run_forked(command(arguments), without_users_data(std::move(environment)), before);
  }
  /// Does what train() does, by executing the program: for tests of what only a process of its own
  /// has, such as its command line, which records show, and its standard streams.
  ProgramResult execute(const std::vector<std::string>& arguments,
                        const std::function<void()>& before_exec = {}) const {
    return run_to_end(command(arguments), without_users_data({}), before_exec);
  }
  std::string in_scratch(const std::string& name) const { return (scratch / name).string(); }

  TemporaryDirectory data;
  TemporaryDirectory scratch;

 private:
  Environment without_users_data(Environment environment) const {
    environment.try_emplace("XDG_CACHE_HOME", (scratch / "cache").string());
    environment.try_emplace("LOCKSTEP_DATA", data.path().string());
    return environment;
  }
};

/// Expects that the program ended with `exit_code` and one line that contains `text`. `name`
/// identifies the case in failures.
inline void expect_one_error(const ProgramResult& result, int exit_code, const std::string& text,
                             const std::string& name) {
  EXPECT_EQ(result.exit_code, exit_code) << name << "\n" << result.err;
  EXPECT_EQ(result.error_lines(), 1) << name << "\n" << result.err;
  EXPECT_EQ(result.lines_beside_notes(), 1) << name << "\n" << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr(text)) << name;
  EXPECT_EQ(result.left_behind, 0) << name;
}

}  // namespace lockstep::testing_support
