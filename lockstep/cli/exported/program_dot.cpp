#include <string_view>

#include <lockstep/cli/exported/program_drawings.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/logged_text.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

// `text` as a quoted string of Graphviz; line feeds become its own.
std::string dot_string(std::string_view text) {
  std::string replaced;
  std::string result = "\"";
  for (const char c : formats::as_utf8(text, replaced)) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string label_of(const ProgramBox& box) {
  std::string label = box.heading();
  const auto add = [&](const std::string& line) {
    if (!line.empty()) label += "\n" + line;
  };
  if (box.kind != ProgramBox::Kind::kCalls && box.type != label) add(box.type);
  if (box.parameters > 0) add(report::count_text(box.parameters) + " parameters");
  return label;
}

}  // namespace

std::string program_dot(const ProgramPicture& picture) {
  std::string text = str("digraph {\nlabel=", dot_string(picture.title), "\nnode [shape=box]\n");
  const bool has_stages = !picture.cuts.empty();
  for (std::size_t i = 0; i < picture.boxes.size(); ++i) {
    const int stage = picture.boxes[i].stage;
    const bool begins = has_stages && (i == 0 || picture.boxes[i - 1].stage != stage);
    if (begins) {
      text +=
          str(i == 0 ? "" : "}\n", "subgraph cluster_", stage, " {\nlabel=\"stage ", stage, "\"\n");
    }
    text += str('n', i, " [label=", dot_string(label_of(picture.boxes[i])), "]\n");
  }
  if (has_stages) text += "}\n";
  for (const ProgramLine& line : picture.lines) {
    text += str('n', line.from, " -> n", line.to, " [label=", dot_string(line.shapes), "]\n");
  }
  return text + "}\n";
}

}  // namespace lockstep::cli
