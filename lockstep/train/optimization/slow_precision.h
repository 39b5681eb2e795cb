// Precisions that slow a run down on this processor.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/train/optimization/precision.h>

namespace lockstep::train {

/// The names of the precisions in which LibTorch computes more slowly on this processor than in
/// float32: "16", and "bf16" unless `cpuinfo`, a file in the form of /proc/cpuinfo, lists
/// instructions that multiply in bfloat16. GPUs are not considered.
std::vector<std::string> slow_precisions(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");

/// A sentence that says how slow `precision` is; empty if it is not among `slow`, the result of
/// slow_precisions().
std::string slow_precision_text(Precision precision, const std::vector<std::string>& slow);

}  // namespace lockstep::train
