#include <lockstep/program/choose_cuts.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include <lockstep/core/error.h>

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
        // The first one of equal choices is kept. An earlier begin costs more.
        for (std::size_t i = j; i-- > 0;) {
          const double cost = until[places[j]] - until[places[i]];
          if (cost > most) break;
          if (best[s - 1][i].value == kNever) continue;
          const double value = combine(best[s - 1][i].value, cost, places[i]);
          if (value <= best[s][j].value) best[s][j] = {value, i};
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
  std::set<std::string> parameters;
  for (const auto& input : program.inputs) {
    if (input.kind != InputSpec::Kind::kParameter) continue;
    parameters.insert(std::get<TensorName>(input.argument.value).name);
  }
  std::vector<double> costs;
  for (const Node& node : program.graph.nodes) {
    double& cost = costs.emplace_back();
    const auto add = [&](const std::string& name, bool) {
      cost += static_cast<double>(bytes_of(program.graph, name));
    };
    for (const auto& output : node.outputs) for_each_name(output, add);
    for (const auto& input : node.inputs) {
      for_each_name(input.argument, [&](const std::string& name, bool is_number) {
        if (parameters.erase(name) == 1) add(name, is_number);
      });
    }
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
