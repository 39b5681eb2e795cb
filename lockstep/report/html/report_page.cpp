#include <lockstep/report/html/report_page.h>

#include <map>

#include <lockstep/core/error.h>
#include <lockstep/report/html/comparison.h>
#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/run_data.h>
#include <lockstep/report/html/run_sections.h>
#include <lockstep/report/html/scaling.h>
#include <lockstep/report/html/table_rows.h>
#include <lockstep/report/svg.h>

namespace lockstep::html {
namespace {

namespace fs = std::filesystem;

// Folders may have equal names; numbers distinguish them.
void tell_apart(Runs& runs) {
  std::map<std::string, int> seen;
  for (RunData& run : runs) {
    const int count = ++seen[run.name];
    if (count > 1) run.name += str(" (", count, ")");
  }
}

// Collects the sections of a page and the links to them.
class Sections {
 public:
  void add(const std::string& id, const std::string& title, const std::string& content) {
    if (content.empty()) return;
    links_ += str("<a href=\"#", id, "\">", svg::escaped(title), "</a>\n");
    text_ += section(id, title, content);
  }

  std::string links() const { return str("<nav aria-label=\"sections\">\n", links_, "</nav>\n"); }
  const std::string& text() const { return text_; }

 private:
  std::string links_;
  std::string text_;
};

std::string with_heading(const std::string& heading, const std::string& content) {
  return content.empty() ? "" : str("<h3>", svg::escaped(heading), "</h3>\n", content);
}

// The content about single runs: a section for each part of one run, or, for several runs, a
// section for each run.
void add_runs(Sections& sections, const Runs& runs) {
  if (runs.size() == 1) {
    sections.add("step", "A step", traced_step_of(runs[0]));
    sections.add("loader", "Loader", queue_of(runs[0]));
    sections.add("pictures", "Pictures", pictures_of(runs[0]));
    return;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    sections.add(str("run-", i + 1), runs[i].name,
                 traced_step_of(runs[i]) + queue_of(runs[i]) + pictures_of(runs[i]));
  }
}

std::string limits_of_all(const Runs& runs) {
  if (runs.size() == 1) return limits_of(runs[0]);
  std::string text;
  for (const RunData& run : runs) text += with_heading(run.name, limits_of(run));
  return text;
}

Sections sections_of(const Runs& runs, const std::vector<RankRate>& rates) {
  Sections sections;
  sections.add("overview", "Overview", overview(runs));
  sections.add("limits", "What limited the speed", limits_of_all(runs));
  sections.add("learning", "Learning", learning(runs));
  sections.add("speed", "Speed", speed(runs));
  sections.add("scaling", "Scaling", scaling_figure(rates, commands_of(runs)));
  add_runs(sections, runs);
  sections.add("utilisation", "Utilisation", utilisation(runs));
  sections.add("configuration", "Configuration", configuration(runs));
  return sections;
}

}  // namespace

std::string report_page(const std::vector<fs::path>& inputs, const std::string& command) {
  Runs runs;
  std::vector<RankRate> rates;
  for (const fs::path& input : inputs) {
    std::error_code ignored;
    if (fs::is_regular_file(input, ignored) && !holds_run_record(input)) {
      const std::vector<RankRate> more = read_table_rates(input);
      rates.insert(rates.end(), more.begin(), more.end());
    } else {
      runs.push_back(read_run_data(input));
    }
  }
  if (runs.empty()) {
    throw ConfigError(
        "report: give at least one folder of a `lockstep train --out` run, or a record of "
        "`lockstep train --json`");
  }
  tell_apart(runs);
  const std::vector<RankRate> own = rates_of(runs);
  rates.insert(rates.end(), own.begin(), own.end());
  std::string names;
  for (const RunData& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  const Sections sections = sections_of(runs, rates);
  return str(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"/>\n<title>Lockstep: ",
      svg::escaped(names), "</title>\n", style(),
      "</head>\n<body>\n<a class=\"skip\" href=\"#report\">Skip to the report</a>\n<header>\n<h1>",
      svg::escaped(names), "</h1>\n", sections.links(), "</header>\n<main id=\"report\">\n",
      sections.text(), "</main>\n<footer><p class=\"soft\">Made by <code>", svg::escaped(command),
      "</code></p></footer>\n</body>\n</html>\n");
}

}  // namespace lockstep::html
