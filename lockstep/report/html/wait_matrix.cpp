#include <lockstep/report/html/wait_matrix.h>

#include <algorithm>

#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr int kMostColumns = 16;
constexpr std::size_t kMostPairs = 100;

using Pair = std::pair<std::pair<int, int>, double>;

// Sorted by decreasing wait, in milliseconds per step.
std::vector<Pair> longest_waits(const TracedRun& run) {
  std::vector<Pair> pairs;
  for (const auto& [ranks, microseconds] : waits_of(run)) {
    if (microseconds > 0)
      pairs.emplace_back(ranks, microseconds / 1e3 / static_cast<double>(run.steps.size()));
  }
  std::ranges::stable_sort(pairs, std::ranges::greater(), &Pair::second);
  return pairs;
}

std::string shaded_cell(double wait, double longest) {
  if (wait <= 0) return "<td>0</td>";
  constexpr double kDarkest = 0.55;
  return str("<td style=\"background:rgba(207,34,46,",
             report::fixed_text(kDarkest * wait / longest, 2), ")\">", report::fixed_text(wait, 3),
             "</td>");
}

std::string matrix_of(const TracedRun& run, const std::vector<Pair>& pairs) {
  const double longest = pairs.empty() ? 1 : pairs.front().second;
  std::string text =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"who waits for "
      "whom\"><table>\n<thead><tr><th scope=\"col\">waits</th>";
  for (int rank = 0; rank < run.ranks; ++rank) {
    text += str("<th scope=\"col\">for rank ", rank, "</th>");
  }
  text += "</tr></thead>\n<tbody>\n";
  for (int rank = 0; rank < run.ranks; ++rank) {
    text += str("<tr><th scope=\"row\">rank ", rank, "</th>");
    for (int other = 0; other < run.ranks; ++other) {
      const auto found = std::ranges::find(pairs, std::pair(rank, other), &Pair::first);
      text += rank == other ? "<td></td>"
                            : shaded_cell(found == pairs.end() ? 0 : found->second, longest);
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace

std::string wait_matrix(const TracedRun& run, const Commands& commands) {
  if (run.ranks < 2 || run.steps.empty()) return "";
  std::vector<Pair> pairs = longest_waits(run);
  if (run.ranks > kMostColumns && pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  Table table{.titles = {"rank", "waits for", "ms a step"}};
  for (const auto& [ranks, wait] : pairs) {
    table.rows.push_back(
        {str("rank ", ranks.first), str("rank ", ranks.second), report::fixed_text(wait, 4)});
  }
  std::string picture =
      run.ranks <= kMostColumns ? matrix_of(run, pairs) : text_of(table, "the longest waits");
  return text_of(Figure{
      .title = "Who waits for whom",
      .note = str(
          "Milliseconds of a step in which a rank was ready for a collective and another rank was "
          "not yet. Backward hides a part of them. The mean of ",
          amount_of(static_cast<std::int64_t>(run.steps.size()), "step"), "."),
      .picture = std::move(picture),
      .table = std::move(table),
      .commands = commands});
}

}  // namespace lockstep::html
