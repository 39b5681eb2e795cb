// Runs `lockstep data` in a test, with the test's own data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/formats/png.h>
#include <tests/cli/forked_program.h>
#include <tests/support/data_bytes.h>
#include <tests/support/mnist_files.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// A folder of images, a small MNIST, and an environment without the user's data.
class DataCommand : public ::testing::Test {
 protected:
  DataCommand() {
    for (int i = 0; i < 12; ++i) {
      const int width = 10 + i;
      const std::string pixels = pattern(static_cast<std::size_t>(width * 8 * 3));
      data.write(
          "images/" + std::string(i < 5 ? "cat/" : "dog/") + std::to_string(10 + i) + ".png",
          detail::encode_png({reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()},
                             width, 8));
    }
    write_mnist(data, "mnist/train", 30);
    write_mnist(data, "mnist/t10k", 20);
  }

  ProgramRun start(const std::vector<std::string>& arguments,
                   const std::function<void()>& before_exec = {}) const {
    return ProgramRun(command(arguments), environment(), before_exec);
  }
  ProgramResult run(const std::vector<std::string>& arguments,
                    const std::function<void()>& before = {}) const {
    return run_forked(command(arguments), environment(), before);
  }
  std::string images() const { return (data / "images").string(); }
  std::string in_out(const std::string& name) const { return (out / name).string(); }
  nlohmann::json read_json(const std::string& name) const {
    return nlohmann::json::parse(read_text(out / name));
  }

  TemporaryDirectory data;
  TemporaryDirectory out;

 private:
  static std::vector<std::string> command(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "data"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  Environment environment() const {
    return {{"XDG_CACHE_HOME", (data / "cache").string()},
            {"LOCKSTEP_DATA", data.path().string()},
            {"LOCKSTEP_MIRROR", "http://127.0.0.1:9"}};
  }
};

}  // namespace lockstep::testing_support
