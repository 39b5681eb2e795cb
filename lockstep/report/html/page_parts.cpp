#include <lockstep/report/html/page_parts.h>

#include <algorithm>
#include <cctype>

#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>

namespace lockstep::html {
namespace {

// Both themes are written out, as in svg.h.
std::string theme(const svg::Palette& palette) {
  std::string rules = str(
      "body{background:", palette.back, ";color:", palette.ink, "}text{fill:", palette.ink,
      "}.s{fill:", palette.soft, "}.soft,figcaption p,.card span{color:", palette.soft,
      "}.l{stroke:", palette.line, "}.h{fill:", palette.back,
      "}td,th,.card,section{border-color:", palette.line, "}a,summary{color:", palette.colors[0],
      "}a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid ",
      palette.colors[0], "}.skip{background:", palette.back, "}.failed{color:", palette.colors[7],
      "}.complete{color:", palette.colors[2], "}.running,.interrupted{color:", palette.colors[5],
      "}\n");
  for (std::size_t color = 0; color < svg::kColors; ++color) {
    rules += str(".k", color, "{stroke:", palette.colors[color], "}.f", color,
                 "{fill:", palette.colors[color], "}");
  }
  return rules + "\n";
}

constexpr const char* kLayout = R"(:root{color-scheme:light dark}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;margin:0 auto;max-width:800px;padding:0 20px 64px}
header{padding:28px 0 4px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:20px;margin:0 0 8px}h3{font-size:16px;margin:26px 0 4px}
section{border-top:1px solid;margin-top:36px;padding-top:22px}
nav{margin-top:10px}nav a{display:inline-block;margin-right:16px}
a{text-underline-offset:2px}
.skip{position:absolute;left:-999px;padding:6px 12px}.skip:focus{left:12px;top:8px}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0}
.card{border:1px solid;border-radius:8px;padding:8px 14px;flex:1 1 128px;display:flex;flex-direction:column;justify-content:space-between}
.card b{display:block;font-size:19px;line-height:1.35;overflow-wrap:anywhere}.card span{font-size:13px;line-height:1.3}
figure{margin:26px 0}figcaption{margin-bottom:8px}figcaption b{font-size:16px}figcaption p{margin:0}
p{margin:6px 0;overflow-wrap:anywhere}
svg{display:block;max-width:100%;height:auto}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.m{text-anchor:middle}.e{text-anchor:end}.l,.a{fill:none}.a{stroke-width:1.8}.o{stroke-dasharray:5 4}.h{stroke-width:1.8}
.narrow{display:none}
@media(max-width:640px){body{padding:0 14px 48px}.wide{display:none}.narrow{display:block}h1{font-size:22px}}
.scroll{overflow-x:auto;max-width:100%;margin:8px 0}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
td,th{border:1px solid;padding:3px 7px;text-align:right;vertical-align:top}
td:first-child,th:first-child{text-align:left}th{font-weight:600}
.t{text-align:left}td.t{overflow-wrap:anywhere;min-width:90px}
summary{cursor:pointer;display:inline-block}details{margin:6px 0}
code{font:12.5px ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
img{max-width:100%;height:auto;image-rendering:auto}
.advice{padding-left:20px}.advice li{margin:8px 0}
@media print{details{display:none}}
)";

// Columns of words are left-aligned, columns of numbers right-aligned.
std::vector<bool> wordy_columns(const Table& table) {
  std::vector<bool> wordy(table.titles.size(), false);  // longer if a row has more cells
  for (const Cells& row : table.rows) {
    wordy.resize(std::max(row.size(), wordy.size()), false);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i].empty() && std::isalpha(static_cast<unsigned char>(row[i][0])) != 0)
        wordy[i] = true;
    }
  }
  return wordy;
}

}  // namespace

std::string text_of(const Table& table, const std::string& label, const std::string& id) {
  std::string text =
      str("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", svg::escaped(label),
          "\"", id.empty() ? "" : str(" id=\"", id, "\""), "><table>\n<thead><tr>");
  const std::vector<bool> wordy = wordy_columns(table);
  for (std::size_t i = 0; i < table.titles.size(); ++i) {
    text += str("<th scope=\"col\"", wordy[i] ? " class=\"t\">" : ">",
                svg::escaped(table.titles[i]), "</th>");
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const Cells& row : table.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += str(wordy[i] ? "<td class=\"t\">" : "<td>", svg::escaped(row[i]), "</td>");
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string text_of(const Figure& figure) {
  if (figure.picture.empty()) return "";
  const std::string title = svg::escaped(figure.title);
  std::string text = str("<figure aria-label=\"", title, "\">\n<figcaption><b>", title, "</b>",
                         figure.note.empty() ? "" : paragraph(figure.note), "</figcaption>\n",
                         figure.picture, "<details><summary>Rows and command</summary>\n",
                         text_of(figure.table, "rows of: " + figure.title));
  for (const auto& [run, command] : figure.commands) {
    if (command.empty()) continue;  // missing in a record of `lockstep train --json`
    text += str("<p>", svg::escaped(run), ": <code>", svg::escaped(command), "</code></p>\n");
  }
  return text + "</details>\n</figure>\n";
}

std::string paragraph(const std::string& text) { return "<p>" + svg::escaped(text) + "</p>\n"; }

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return str("<section id=\"", id, "\">\n<h2>", svg::escaped(title), "</h2>\n", content,
             "</section>\n");
}

std::string style() {
  return str("<style>\n", kLayout, svg::for_both_schemes(theme), "</style>\n");
}

}  // namespace lockstep::html
