#include <lockstep/report/html/scaling.h>

#include <algorithm>
#include <compare>
#include <map>

#include <lockstep/core/strings.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr const char* kSingle = "single";
constexpr int kGray = 6;

// What the rates of a curve have in common.
struct Comparable {
  std::string strategy{};
  std::string work{};
  std::string batch{};  // one of batches_of()

  auto operator<=>(const Comparable&) const = default;
};
using RatesByRanks = std::map<int, RankRate>;

// The batch as the work of a rank, and as that of all ranks; only one text if it is unknown.
std::vector<std::string> batches_of(const RankRate& rate) {
  if (rate.global_batch <= 0) return {""};
  return {str(", batch ", rate.global_batch / rate.ranks, " a rank"),
          str(", batch ", rate.global_batch, " in all")};
}

void keep_best(RatesByRanks& group, const RankRate& rate) {
  const auto [place, is_new] = group.try_emplace(rate.ranks, rate);
  if (!is_new && rate.images_per_second > place->second.images_per_second) place->second = rate;
}

}  // namespace

double ScalingCurve::speedup(std::size_t i) const {
  return rates[i].images_per_second / rates.front().images_per_second * rates.front().ranks;
}

std::vector<ScalingCurve> scaling_curves(const std::vector<RankRate>& rates) {
  std::map<Comparable, RatesByRanks> groups;
  for (const RankRate& rate : rates) {
    if (rate.images_per_second <= 0 || rate.ranks <= 0) continue;
    for (const std::string& batch : batches_of(rate)) {
      keep_best(groups[{rate.strategy, rate.work, batch}], rate);
    }
  }
  std::vector<ScalingCurve> curves;
  for (auto& [what, group] : groups) {
    const auto single = groups.find({kSingle, what.work, what.batch});
    if (what.strategy != kSingle && single != groups.end() && !group.contains(1)) {
      for (const auto& [ranks, rate] : single->second) keep_best(group, rate);
    }
    if (group.size() < 2) continue;
    ScalingCurve curve{.name = str(what.strategy, ": ", what.work, what.batch)};
    for (const auto& [ranks, rate] : group) curve.rates.push_back(rate);
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::string scaling_figure(const std::vector<RankRate>& rates, const Commands& commands) {
  LineChart chart{.title = "Speed-up by ranks", .x_label = "ranks", .y_label = "speed-up"};
  Table table{.titles = {"strategy", "from", "ranks", "images/s", "speed-up", "of the ideal"}};
  double fewest = 0, most = 0;
  for (const ScalingCurve& scaling : scaling_curves(rates)) {
    Curve curve{.name = scaling.name};
    for (std::size_t i = 0; i < scaling.rates.size(); ++i) {
      const RankRate& rate = scaling.rates[i];
      curve.points.emplace_back(rate.ranks, scaling.speedup(i));
      fewest = fewest == 0 ? rate.ranks : std::min<double>(fewest, rate.ranks);
      most = std::max<double>(most, rate.ranks);
      table.rows.push_back({scaling.name, rate.source, str(rate.ranks),
                            report::count_text(rate.images_per_second),
                            report::fixed_text(scaling.speedup(i), 2),
                            report::percent_text(scaling.speedup(i) / rate.ranks)});
    }
    chart.curves.push_back(std::move(curve));
  }
  if (chart.curves.empty()) return "";
  chart.curves.push_back({.name = "ideal: nothing is lost",
                          .points = {{fewest, fewest}, {most, most}},
                          .is_dashed = true,
                          .color = kGray});
  return text_of(Figure{.title = chart.title,
                        .note =
                            "Images per second of the best epoch, over those of the fewest ranks. "
                            "Ranks that share processors cannot reach the ideal line.",
                        .picture = in_both_widths(chart),
                        .table = std::move(table),
                        .commands = commands});
}

}  // namespace lockstep::html
