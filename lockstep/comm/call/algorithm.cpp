#include <lockstep/comm/call/algorithm.h>

namespace lockstep {

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNative:
      return "native";
    case Algorithm::kReduceBroadcast:
      return "reduce-broadcast";
    case Algorithm::kAllToAll:
      return "all-to-all";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kHalvingDoubling:
      return "halving-doubling";
    case Algorithm::kTree:
      return "tree";
  }
  return "?";
}

std::optional<Algorithm> algorithm_from_name(const std::string& name) {
  for (const Algorithm algorithm : all_algorithms()) {
    if (name == algorithm_name(algorithm)) return algorithm;
  }
  return std::nullopt;
}

const std::vector<Algorithm>& all_algorithms() {
  static const std::vector<Algorithm> algorithms = {
      Algorithm::kAuto,     Algorithm::kNative, Algorithm::kReduceBroadcast,
      Algorithm::kAllToAll, Algorithm::kRing,   Algorithm::kHalvingDoubling,
      Algorithm::kTree};
  return algorithms;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm algorithm : all_algorithms()) names.emplace_back(algorithm_name(algorithm));
  return names;
}

}  // namespace lockstep
