#include <lockstep/program/choose_cuts.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include <lockstep/core/error.h>
#include <lockstep/program/pt2_file.h>

namespace lockstep::program {

namespace {

// Empty if there are too few places.
std::vector<std::size_t> best_cuts(const std::vector<Cut>& cuts, const std::vector<double>& costs,
                                   int stages) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t nodes = costs.size();
  std::vector<double> until(nodes + 1);  // the cost of all nodes before
  std::partial_sum(costs.begin(), costs.end(), until.begin() + 1);
  std::vector<std::size_t> places{0};
  for (std::size_t i = 1; i < nodes; ++i) {
    if (cuts[i].obstacle.empty()) places.push_back(i);
  }
  places.push_back(nodes);
  const std::size_t count = places.size();
  const auto wanted = static_cast<std::size_t>(stages);
  // best[s][j]: the best s stages that end at places[j], and where the last one begins.
  struct Best {
    double value = std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
  };
  const auto solve = [&](double most, const auto& combine) {
    std::vector<std::vector<Best>> best(wanted + 1, std::vector<Best>(count));
    best[0][0].value = 0;
    for (std::size_t s = 1; s <= wanted; ++s) {
      for (std::size_t j = 1; j < count; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
          const double cost = until[places[j]] - until[places[i]];
          if (cost > most || best[s - 1][i].value == kNever) continue;
          const double value = combine(best[s - 1][i].value, cost, places[i]);
          if (value < best[s][j].value) best[s][j] = {value, i};
        }
      }
    }
    return best;
  };
  const auto by_cost =
      solve(kNever, [](double before, double cost, std::size_t) { return std::max(before, cost); });
  if (by_cost[wanted][count - 1].value == kNever) return {};
  constexpr double kTolerance = 1.1;
  const double most = kTolerance * by_cost[wanted][count - 1].value;
  const auto by_bytes = solve(most, [&](double before, double, std::size_t begin) {
    return before + static_cast<double>(cuts[begin].bytes);
  });
  std::vector<std::size_t> begins;
  for (std::size_t s = wanted, j = count - 1; s > 1; --s) {
    j = by_bytes[s][j].begin;
    begins.push_back(places[j]);
  }
  std::reverse(begins.begin(), begins.end());
  return begins;
}

}  // namespace

std::vector<double> bytes_of_nodes(const ExportedGraph& program) {
  const auto bytes_of = [&](const Argument& argument, auto& self) -> double {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      double sum = 0;
      for (const auto& item : list->items) sum += self(item, self);
      return sum;
    }
    const auto* tensor = std::get_if<TensorName>(&argument.value);
    const auto found =
        tensor == nullptr ? program.graph.tensors.end() : program.graph.tensors.find(tensor->name);
    if (found == program.graph.tensors.end()) return 0;
    const auto* type = scalar_type_info(found->second.dtype);
    double bytes = type == nullptr ? 0 : static_cast<double>(type->bytes);
    for (const Size& size : found->second.sizes) bytes *= static_cast<double>(size.value);
    return bytes;
  };
  std::set<std::string> parameters;
  for (const auto& input : program.inputs) {
    if (input.kind != InputSpec::Kind::kParameter) continue;
    parameters.insert(std::get<TensorName>(input.argument.value).name);
  }
  std::vector<double> costs;
  for (const Node& node : program.graph.nodes) {
    double cost = 0;
    for (const auto& output : node.outputs) cost += bytes_of(output, bytes_of);
    for (const auto& input : node.inputs) {
      const auto* tensor = std::get_if<TensorName>(&input.argument.value);
      if (tensor != nullptr && parameters.erase(tensor->name) == 1) {
        cost += bytes_of(input.argument, bytes_of);
      }
    }
    costs.push_back(cost);
  }
  return costs;
}

std::vector<std::size_t> choose_cuts(const std::string& owner, const std::vector<Cut>& cuts,
                                     const std::vector<double>& costs, int stages) {
  auto begins = best_cuts(cuts, costs, stages);
  if (begins.size() + 1 == static_cast<std::size_t>(stages)) return begins;
  std::int64_t places = 0;
  for (const Cut& cut : cuts) places += cut.obstacle.empty() ? 1 : 0;
  throw ConfigError(str(owner, " can be cut at ", amount_of(places, "place"),
                        ", which is too few for ", stages, " stages"));
}

}  // namespace lockstep::program
