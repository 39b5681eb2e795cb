#include <lockstep/train/optimization/slow_precision.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace lockstep::train {
namespace {

// x86 calls them flags: AVX-512 and the tiles of AMX; Arm calls them features.
constexpr std::array kBfloat16Instructions = {"avx512_bf16", "amx_bf16", "bf16"};

// Whether the list of the first processor in `cpuinfo` has instructions for bfloat16.
bool multiplies_bfloat16(const std::filesystem::path& cpuinfo) {
  std::ifstream file(cpuinfo);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (std::ranges::find(kBfloat16Instructions, word) != kBfloat16Instructions.end())
        return true;
    }
    return false;
  }
  return false;
}

}  // namespace

std::vector<std::string> slow_precisions(const std::filesystem::path& cpuinfo) {
  std::vector<std::string> slow = {to_string(Precision::kFp16)};
  if (!multiplies_bfloat16(cpuinfo)) slow.insert(slow.begin(), to_string(Precision::kBf16));
  return slow;
}

std::string slow_precision_text(Precision precision, const std::vector<std::string>& slow) {
  if (std::ranges::find(slow, to_string(precision)) == slow.end()) return {};
  if (precision == Precision::kBf16) {
    return "bfloat16 is 5 to 20 times slower than float32 on this processor, which has no "
           "instructions for it";
  }
  return "float16 is slower than float32 on a CPU";
}

}  // namespace lockstep::train
