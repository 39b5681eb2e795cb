#include <lockstep/cli/exported/program_picture.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/graph/expression.h>
#include <lockstep/program/graph/signature.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

using formats::printable;
using program::InputSpec;
using program::Node;

// More arguments or results are drawn as one box.
constexpr std::size_t kMostEnds = 20;

// The first `depth` names of the path of a module.
std::string_view cut_path(std::string_view path, int depth) {
  if (depth == 0) return {};
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) {
    end = path.find('.', i == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) return path;
  }
  return path.substr(0, end);
}

int levels_of(std::string_view path) {
  return path.empty() ? 0 : 1 + static_cast<int>(std::count(path.begin(), path.end(), '.'));
}

// How many names both paths begin with.
int common_levels(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  int levels = 0;
  std::size_t i = 0;
  for (; i < most && a[i] == b[i]; ++i) levels += a[i] == '.' ? 1 : 0;
  const auto ends = [&](std::string_view text) { return i == text.size() || text[i] == '.'; };
  return i > 0 && ends(a) && ends(b) ? levels + 1 : levels;
}

// "Conv2d" for "torch.nn.modules.conv.Conv2d".
std::string short_type(std::string_view type) {
  return printable(type.substr(type.rfind('.') + 1));
}

// "conv2d" for "torch.ops.aten.conv2d.default"; the namespace stays if it is another one, as in
// "higher_order.cond", which has no overloads.
std::string short_operator(std::string_view target) {
  if (target.starts_with("torch.ops.")) target.remove_prefix(10);
  if (std::count(target.begin(), target.end(), '.') > 1) {
    target = target.substr(0, target.rfind('.'));
  }
  if (target.starts_with("aten.")) target.remove_prefix(5);
  return printable(target);
}

bool returns_tensor(const Node& node) {
  bool found = false;
  for (const program::Argument& output : node.outputs) {
    for_each_name(output, [&](const std::string&, bool is_number) { found |= !is_number; });
  }
  return found;
}

// Counts distinct texts, of which the first ones are shown in the order in which they were added.
class FewTexts {
 public:
  void add(const std::string& text) {
    if (++counts_[text] == 1 && shown_.size() < kMostShown) shown_.push_back(text);
  }
  std::string text(bool with_counts) const {
    std::vector<std::string> parts;
    for (const std::string& text : shown_) {
      const int count = counts_.at(text);
      parts.push_back(with_counts && count > 1 ? str(text, " x ", count) : text);
    }
    const std::size_t more = counts_.size() - shown_.size();
    if (more > 0) parts.push_back(str(more, " more"));
    return join(parts);
  }

 private:
  static constexpr std::size_t kMostShown = 4;

  std::map<std::string, int> counts_;
  std::vector<std::string> shown_;
};

class PictureMaker {
 public:
  PictureMaker(const std::string& name, const program::Pt2File& file,
               const std::vector<NodeCut>& cuts)
      : name_(name), file_(file), graph_(file.program.graph), cuts_(cuts) {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      // Sizes and checks of sizes have no box.
      if (returns_tensor(graph_.nodes[i])) drawn_.push_back(i);
    }
    find_parents();
    find_batch();
    find_parameters();
  }

  ProgramPicture make(std::optional<int> depth) {
    depth_ = depth.value_or(default_depth());
    const std::int64_t boxes = boxes_at(depth_);
    if (boxes > kMostBoxes) {
      throw ConfigError(str(name_, " has ", boxes, " boxes at --depth ", depth_,
                            ", but a picture can have at most ", kMostBoxes,
                            "; give a smaller --depth"));
    }
    const program::ExportedGraph& program = file_.program;
    const program::ProgramSignature signature = program::signature_of(program);
    add_ends(ProgramBox::Kind::kArgument, user_values(program.inputs), signature.inputs, "argument",
             [this](const std::string& value, std::size_t box) { makers_[value] = box; });
    for (const std::size_t node : drawn_) add_node(node);
    add_ends(ProgramBox::Kind::kResult, user_values(program.outputs), signature.outputs, "result",
             [this](const std::string& value, std::size_t box) { pass(value, box); });
    finish();
    return std::move(picture_);
  }

 private:
  // Paths of modules that contain others.
  void find_parents() {
    std::unordered_set<std::string_view> seen;
    for (const std::size_t node : drawn_) {
      const std::string_view path = graph_.nodes[node].module_path;
      if (path.empty() || !seen.insert(path).second) continue;
      parents_.insert(std::string_view());
      std::size_t end = path.find('.');
      for (int depth = 1; depth < kMostDepth && end != std::string_view::npos; ++depth) {
        parents_.insert(path.substr(0, end));
        end = path.find('.', end + 1);
      }
    }
  }

  // The symbol of the first dimension of the first argument is shown as N.
  void find_batch() {
    for (const InputSpec& input : file_.program.inputs) {
      const auto* tensor = std::get_if<program::TensorName>(&input.argument.value);
      if (input.kind != InputSpec::Kind::kUser || tensor == nullptr) continue;
      const auto described = graph_.tensors.find(tensor->name);
      if (described == graph_.tensors.end() || described->second.sizes.empty()) return;
      batch_ = program::only_symbol(described->second.sizes.front().expression);
      return;
    }
  }

  void find_parameters() {
    for (const InputSpec& input : file_.program.inputs) {
      const auto* tensor = std::get_if<program::TensorName>(&input.argument.value);
      const auto stored = file_.state.find(input.target);
      if (input.kind != InputSpec::Kind::kParameter || tensor == nullptr) continue;
      if (stored != file_.state.end()) parameters_[tensor->name] = &stored->second;
    }
  }

  int stage_of(std::size_t node) const {
    const auto after =
        std::upper_bound(cuts_.begin(), cuts_.end(), node,
                         [](std::size_t value, const NodeCut& cut) { return value < cut.node; });
    return static_cast<int>(after - cuts_.begin());
  }

  // Neighbouring calls with the same path at some depth share a box at that depth.
  void count_boxes() {
    changes_.fill(0);
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      const Node& node = graph_.nodes[drawn_[i]];
      const bool begins_stage = i > 0 && stage_of(drawn_[i]) != stage_of(drawn_[i - 1]);
      if (i == 0 || begins_stage) {
        ++always_;
        continue;
      }
      const std::string& before = graph_.nodes[drawn_[i - 1]].module_path;
      if (before == node.module_path) continue;
      const int levels = common_levels(before, node.module_path);
      if (levels < kMostDepth) ++changes_[static_cast<std::size_t>(levels)];
    }
    is_counted_ = true;
  }

  std::int64_t boxes_at(int depth) {
    if (!is_counted_) count_boxes();
    std::int64_t count = always_;
    for (int levels = 0; levels < depth; ++levels) {
      count += changes_[static_cast<std::size_t>(levels)];
    }
    return count;
  }

  int default_depth() {
    int deepest = 0;
    for (const std::size_t node : drawn_) {
      deepest = std::max(deepest, levels_of(graph_.nodes[node].module_path));
    }
    deepest = std::clamp(deepest, 1, kMostDepth);
    int depth = 0;
    while (depth < deepest && boxes_at(depth + 1) <= kUsualBoxes) ++depth;
    return depth == 0 && boxes_at(1) <= kMostBoxes ? 1 : depth;
  }

  std::string shape_of(const std::string& value) const {
    constexpr std::size_t kMostDimensions = 8;
    const auto described = graph_.tensors.find(value);
    if (described == graph_.tensors.end()) return "[?]";
    const auto& sizes = described->second.sizes;
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < std::min(sizes.size(), kMostDimensions); ++i) {
      if (sizes[i].expression.empty()) {
        texts.push_back(str(sizes[i].value));
        continue;
      }
      const auto symbol = program::only_symbol(sizes[i].expression);
      texts.push_back(!symbol ? "?" : symbol == batch_ ? "N" : printable(*symbol));
    }
    if (sizes.size() > kMostDimensions) texts.emplace_back("...");
    return printable("[" + join(texts) + "]");
  }

  ProgramBox& add_box(ProgramBox::Kind kind, std::string name) {
    picture_.boxes.push_back({.kind = kind, .name = printable(name)});
    operators_.emplace_back();
    shapes_.emplace_back();
    return picture_.boxes.back();
  }

  // The tensors that the user passes or gets.
  template <class Spec>
  std::vector<std::string> user_values(const std::vector<Spec>& specs) const {
    std::vector<std::string> values;
    for (const Spec& spec : specs) {
      const auto* tensor = std::get_if<program::TensorName>(&spec.argument.value);
      const bool is_described = tensor != nullptr && graph_.tensors.contains(tensor->name);
      if (spec.kind == Spec::Kind::kUser && is_described) values.push_back(tensor->name);
    }
    return values;
  }

  // Adds a box for each argument or result, or one for all if there are many. Calls
  // visit(value, box).
  template <class Visit>
  void add_ends(ProgramBox::Kind kind, const std::vector<std::string>& values,
                const std::vector<program::TensorSignature>& signature, const std::string& noun,
                const Visit& visit) {
    const bool has_each = values.size() <= kMostEnds;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (has_each || i == 0) {
        const int stage = picture_.boxes.empty() ? 0 : picture_.boxes.back().stage;
        const bool is_unnamed = values.size() == 1 && signature.at(i).name == "0";
        const auto count = static_cast<std::int64_t>(values.size());
        ProgramBox& box = add_box(kind, !has_each    ? report::count_of(count, noun)
                                        : is_unnamed ? noun
                                                     : signature.at(i).name);
        if (has_each) box.type = signature.at(i).dtype;
        box.stage = stage;
      }
      shapes_.back().add(shape_of(values[i]));
      visit(values[i], picture_.boxes.size() - 1);
    }
  }

  void add_node(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const std::string_view path = cut_path(node.module_path, depth_);
    const int stage = stage_of(index);
    const bool continues = is_open_ && path == path_ && stage == picture_.boxes.back().stage;
    if (!continues) begin_box(node, path, stage);
    ProgramBox& box = picture_.boxes.back();
    operators_.back().add(short_operator(node.target));
    const std::size_t here = picture_.boxes.size() - 1;
    for (const program::NamedArgument& input : node.inputs) {
      for_each_name(input.argument, [&](const std::string& value, bool) {
        if (const auto found = parameters_.find(value); found != parameters_.end()) {
          // A tied parameter counts once.
          const bool is_new = counted_.insert(found->second->storage.data()).second;
          if (is_new) box.parameters += static_cast<double>(program::elements_of(*found->second));
        } else {
          pass(value, here);
        }
      });
    }
    for (const program::Argument& output : node.outputs) {
      for_each_name(output, [&](const std::string& value, bool is_number) {
        if (!is_number) makers_[value] = here;
      });
    }
  }

  void begin_box(const Node& node, std::string_view path, int stage) {
    if (!picture_.boxes.empty() && picture_.boxes.back().stage != stage) {
      const auto cut = static_cast<std::size_t>(stage - 1);
      picture_.cuts.push_back({.box = picture_.boxes.size(), .bytes = cuts_[cut].bytes});
    }
    // The deepest level has one box for a module's own calls and those of the modules in it.
    const bool is_own = levels_of(path) < depth_ && parents_.contains(path);
    ProgramBox& box =
        add_box(is_own ? ProgramBox::Kind::kCalls : ProgramBox::Kind::kModule, std::string(path));
    const auto type = graph_.module_classes.find(path);
    if (type != graph_.module_classes.end()) box.type = short_type(type->second);
    box.source = printable(node.source);
    box.stage = stage;
    note_types_around(path);
    path_ = path;
    is_open_ = true;
  }

  void note_types_around(std::string_view path) {
    for (int depth = 1; depth <= levels_of(path); ++depth) {
      const std::string_view part = cut_path(path, depth);
      const auto type = graph_.module_classes.find(part);
      if (type == graph_.module_classes.end()) continue;
      picture_.module_types.emplace(printable(part), short_type(type->second));
    }
  }

  void pass(const std::string& value, std::size_t to) {
    const auto maker = makers_.find(value);
    if (maker == makers_.end() || maker->second == to) return;
    const std::string shape = shape_of(value);
    shapes_[maker->second].add(shape);
    lines_[{maker->second, to}].add(shape);
    if (lines_.size() > kMostLines) {
      throw ConfigError(str(name_, " has more than ", kMostLines,
                            " lines between boxes at --depth ", depth_,
                            "; give a smaller --depth"));
    }
  }

  void finish() {
    double parameters = 0;
    std::int64_t boxes = 0;
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      ProgramBox& box = picture_.boxes[i];
      parameters += box.parameters;
      boxes += box.kind == ProgramBox::Kind::kModule || box.kind == ProgramBox::Kind::kCalls;
      box.shapes = shapes_[i].text(/*with_counts=*/false);
      box.calls = operators_[i].text(/*with_counts=*/true);
    }
    for (const auto& [ends, shapes] : lines_) {
      picture_.lines.push_back({ends.first, ends.second, shapes.text(/*with_counts=*/false)});
    }
    picture_.title = str(printable(std::filesystem::path(name_).filename().string()), ": ",
                         report::count_of(static_cast<std::int64_t>(graph_.nodes.size()), "call"),
                         " in ", boxes, boxes == 1 ? " box" : " boxes", " at depth ", depth_, ", ",
                         report::count_text(parameters), " parameters");
  }

  const std::string& name_;
  const program::Pt2File& file_;
  const program::Graph& graph_;
  const std::vector<NodeCut>& cuts_;
  std::vector<std::size_t> drawn_;  // nodes that return tensors
  std::unordered_set<std::string_view> parents_;
  std::optional<std::string> batch_;
  std::unordered_map<std::string, const program::StoredTensor*> parameters_;  // by value
  // How many calls have another path than the call before, by the number of names that both paths
  // begin with; and how many boxes begin at every depth.
  std::array<std::int64_t, kMostDepth> changes_{};
  std::int64_t always_ = 0;
  bool is_counted_ = false;
  int depth_ = 0;
  std::string_view path_;                                // the path of the last box
  bool is_open_ = false;                                 // whether that is one of calls
  std::unordered_map<std::string, std::size_t> makers_;  // the box of each tensor
  std::unordered_set<const std::byte*> counted_;
  std::vector<FewTexts> operators_;  // the operators of each box
  std::vector<FewTexts> shapes_;     // the shapes that each box passes on
  std::map<std::pair<std::size_t, std::size_t>, FewTexts> lines_;
  ProgramPicture picture_;
};

}  // namespace

ProgramPicture picture_of(const std::string& name, const program::Pt2File& file,
                          std::optional<int> depth, const std::vector<NodeCut>& cuts) {
  return PictureMaker(name, file, cuts).make(depth);
}

}  // namespace lockstep::cli
