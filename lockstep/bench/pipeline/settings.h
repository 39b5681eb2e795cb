// The stages that `lockstep explain pipeline --measured` runs.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// Square linear layers, each followed by an activation, or stages that wait instead of computing.
struct ToyStages {
  int wait_microseconds = 0;  ///< per forward and per half of a backward; 0: the stages compute
  std::string activation = "relu";  ///< or gelu
  std::int64_t width = 512;         ///< features of a layer's inputs and outputs
  int layers = 2;                   ///< linear layers per stage
  std::int64_t samples = 64;        ///< per micro-batch
  int threads = 1;                  ///< per worker
  int steps = 21;                   ///< steps whose median is shown
};

}  // namespace lockstep::bench
