#include <lockstep/report/profile_table.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/report/output.h>
#include <lockstep/report/text.h>

namespace lockstep::report {
namespace {

// A step's phases often take less than a millisecond.
std::string mean_text(double seconds) {
  if (seconds < 0.9995e-3) return fixed_text(seconds * 1e6, 0) + " us";
  if (seconds < 0.9995) return fixed_text(seconds * 1e3, 1) + " ms";
  return seconds_text(seconds);
}

}  // namespace

std::string table_text(std::span<const ProfiledAction> profile) {
  constexpr std::array<int, 5> kWidths = {-13, 9, 9, 10, 6};
  std::vector<ProfiledAction> actions(profile.begin(), profile.end());
  std::ranges::stable_sort(actions, std::ranges::greater(), &ProfiledAction::seconds);
  double all = 0;
  for (const ProfiledAction& action : actions) all += action.seconds;
  using Cells = std::array<std::string, 5>;
  std::string text =
      padded_cells(Cells{"action", "calls", "mean", "total", "share"}, kWidths) + '\n';
  for (const ProfiledAction& action : actions) {
    const double calls = static_cast<double>(std::max<std::int64_t>(action.calls, 1));
    const double share = all > 0 ? 100 * action.seconds / all : 0;
    text += padded_cells(Cells{action.name, count_text(static_cast<double>(action.calls)),
                               mean_text(action.seconds / calls), seconds_text(action.seconds),
                               fixed_text(share, 1) + "%"},
                         kWidths) +
            '\n';
  }
  return text;
}

void ProfileTable::on_run_end(const RunReport& report) {
  if (report.profile.empty()) return;
  out_ << '\n' << table_text(report.profile);
  flush_output(out_);
}

}  // namespace lockstep::report
