// Right files of every format, small, for fuzzing to begin from. Made by code: the repository holds
// no binary files.
#pragma once

#include <string>
#include <vector>

#include <tests/formats/fuzz/targets.h>

namespace lockstep::testing_support {

struct Seed {
  const char* target;  ///< the function fuzz_TARGET
  std::string name;    ///< letters, digits and _
  bool (*run)(std::span<const std::byte>);
  std::string content;
};

std::vector<Seed> fuzz_seeds();

}  // namespace lockstep::testing_support
