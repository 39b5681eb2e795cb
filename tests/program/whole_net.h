// A net of a user that contains a program.
#pragma once

#include <torch/nn/cloneable.h>

#include <filesystem>
#include <utility>

#include <lockstep/program/program.h>

namespace lockstep::testing_support {

/// reset() reads the program with the default options, as clone() of the net does.
struct WholeNet : torch::nn::Cloneable<WholeNet> {
  explicit WholeNet(std::filesystem::path path) : path_(std::move(path)) { reset(); }
  void reset() override { program = register_module("program", Program(path_)); }

  Program program{nullptr};

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::testing_support
