// Trains small nets with the program, for tests of the commands that use them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/train_command.h>
#include <tests/support/colour_folder.h>

namespace lockstep::testing_support {

using Words = std::vector<std::string>;

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class TrainedNets : public TrainCommand {
 protected:
  /// Runs `lockstep WORDS...` in an environment without the user's data.
  ProgramResult run(const Words& words) const {
    return run_forked(joined({LOCKSTEP_PROGRAM}, words),
                      {{"XDG_CACHE_HOME", in_scratch("cache")},
                       {"LOCKSTEP_DATA", data.path().string()},
                       {"LOCKSTEP_MIRROR", "http://127.0.0.1:9"}});
  }
  /// Trains `recipe` for an epoch in the folder run, with the record run.json.
  void train_net(const std::string& recipe, const Words& more = {}) const {
    const ProgramResult trained =
        run(joined({"train", recipe, "--max-epochs", "1", "--threads", "1", "--accelerator", "cpu",
                    "--out", in_scratch("run"), "--json", in_scratch("run.json")},
                   more));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  /// Writes 20 images of two classes to the folder photos, and trains a classifier on them.
  void train_photos(const Words& more = {}) {
    write_colours(scratch, "photos", 20, 2);
    train_net(
        "classify",
        joined({"--data", in_scratch("photos"), "--image-size", "64", "--batch-size", "3"}, more));
  }
  /// Runs predict or evaluate on the run, on one thread and the CPU.
  ProgramResult use(const std::string& command, const Words& more) const {
    return run(
        joined({command, in_scratch("run"), "--threads", "1", "--accelerator", "cpu"}, more));
  }
  nlohmann::json read_json(const std::string& name) const {
    return nlohmann::json::parse(read_text(scratch / name));
  }
  /// The lines of a file of the scratch folder.
  std::vector<std::string> lines_in(const std::string& name) const {
    std::ifstream file(scratch / name);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
};

}  // namespace lockstep::testing_support
