// Cuts an exported program into stages for pipelines.
//
//   lockstep::Program net("gpt2.pt2");
//   lockstep::Pipeline pipe(lockstep::pipeline::stage_modules(lockstep::split(net, 2)),
//                           {torch::kCPU, torch::kCPU});
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/program/program.h>

namespace lockstep {

struct LOCKSTEP_API ProgramSplitOptions {
  /// Balance the stages by the time of their operators, which is measured with a batch of the size
  /// that the model was exported with. Measured times differ from process to process: ranks that
  /// each call split() would cut at different places. If false, balance by the bytes of parameters
  /// and results, which gives the same stages everywhere.
  bool by_time = false;
};

/// Cuts `program` into `stages` programs so that the most expensive one costs at most a tenth more
/// than it must, and as few bytes as possible pass from stage to stage. A stage takes the tensors
/// that the stage before returns; the first takes the arguments of `program`, the last returns its
/// results. The stages share the parameters and buffers of `program`, under the same names; one
/// that several stages use belongs to each of them. Together they compute the same bits as the
/// whole program, gradients included. Throws ConfigError if there are fewer places for cuts.
LOCKSTEP_API std::vector<Program> split(const Program& program, int stages,
                                        const ProgramSplitOptions& options = {});

}  // namespace lockstep
