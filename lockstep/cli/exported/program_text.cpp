#include <algorithm>
#include <array>
#include <string_view>

#include <lockstep/cli/exported/program_drawings.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kWidestName = 48;

// The names in a module's path.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    names.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

struct TextRow {
  std::string name{};
  std::string type{};
  std::string parameters{};
  std::string shapes{};
  std::string from{};
};

class ProgramTable {
 public:
  explicit ProgramTable(const ProgramPicture& picture) : picture_(picture) {}

  std::string text() {
    find_sources();
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) add(i);
    std::array<int, 4> widths = {-1, -1, 1, -1};
    const auto widen = [](int& width, const std::string& cell) {
      const int size = static_cast<int>(cell.size());
      width = width < 0 ? std::min(width, -size) : std::max(width, size);
    };
    for (const TextRow& row : rows_) {
      widen(widths[0], row.name);
      widen(widths[1], row.type);
      widen(widths[2], row.parameters);
      widen(widths[3], row.shapes);
    }
    std::string text = picture_.title + "\n";
    for (const TextRow& row : rows_) {
      const std::array<std::string, 4> cells = {row.name, row.type, row.parameters, row.shapes};
      std::string line = report::padded_cells(cells, widths);
      if (!row.from.empty()) line += "  " + row.from;
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  // The boxes besides the one before whose tensors a box takes.
  void find_sources() {
    sources_.resize(picture_.boxes.size());
    for (const ProgramLine& line : picture_.lines) sources_[line.to].push_back(line.from);
  }

  std::string from_text(std::size_t box) const {
    constexpr std::size_t kMostShown = 3;
    const std::vector<std::size_t>& sources = sources_[box];
    if (sources.size() == 1 && sources.front() + 1 == box) return "";
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(sources.size(), kMostShown); ++i) {
      names.push_back(picture_.boxes[sources[i]].heading());
    }
    if (sources.size() > kMostShown) names.push_back(str(sources.size() - kMostShown, " more"));
    return names.empty() ? "" : "from " + join(names);
  }

  void add(std::size_t index) {
    const ProgramBox& box = picture_.boxes[index];
    if (next_cut_ < picture_.cuts.size() && picture_.cuts[next_cut_].box == index) {
      rows_.push_back(
          {.name = str("-- stage ", box.stage),
           .shapes =
               report::bytes_text(static_cast<double>(picture_.cuts[next_cut_].bytes)) + " cross"});
      ++next_cut_;
      open_.clear();
    }
    const bool is_end =
        box.kind == ProgramBox::Kind::kArgument || box.kind == ProgramBox::Kind::kResult;
    std::vector<std::string> around = is_end ? std::vector<std::string>() : names_in(box.name);
    std::string name = box.heading();
    if (box.kind == ProgramBox::Kind::kModule && !around.empty()) {
      name = around.back();
      around.pop_back();
    }
    open_modules(around);
    const std::string indent(kIndent * around.size(), ' ');
    rows_.push_back({.name = (indent + name).substr(0, kWidestName),
                     .type = box.kind == ProgramBox::Kind::kCalls ? "" : box.type,
                     .parameters = box.parameters == 0 ? "" : report::count_text(box.parameters),
                     .shapes = box.shapes,
                     .from = from_text(index)});
  }

  // A line for each module that the row before is not in.
  void open_modules(const std::vector<std::string>& names) {
    const auto differs = std::mismatch(names.begin(), names.end(), open_.begin(), open_.end());
    const auto common = static_cast<std::size_t>(differs.first - names.begin());
    for (std::size_t i = common; i < names.size(); ++i) {
      const std::vector<std::string> path(names.begin(),
                                          names.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      const auto type = picture_.module_types.find(join(path, "."));
      rows_.push_back({.name = (std::string(kIndent * i, ' ') + names[i]).substr(0, kWidestName),
                       .type = type == picture_.module_types.end() ? "" : type->second});
    }
    open_ = names;
  }

  const ProgramPicture& picture_;
  std::vector<std::vector<std::size_t>> sources_;  // each box's
  std::vector<std::string> open_;                  // the modules around the last row
  std::size_t next_cut_ = 0;
  std::vector<TextRow> rows_;
};

}  // namespace

std::string program_text(const ProgramPicture& picture) { return ProgramTable(picture).text(); }

}  // namespace lockstep::cli
