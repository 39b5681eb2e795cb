// The content of a drawing of an exported program: boxes for calls of modules, and the tensors that
// pass between them. Does not see LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/program/graph/pt2_file.h>

namespace lockstep::cli {

inline constexpr int kUsualBoxes = 60;
inline constexpr int kMostDepth = 64;
/// A picture of more boxes or lines is refused: it could not be read, and a damaged file may have
/// any number of nodes.
inline constexpr std::int64_t kMostBoxes = 2000;
inline constexpr std::size_t kMostLines = 20'000;

/// An argument or result of the program, or neighbouring calls of one module. All text has one line
/// of at most 80 bytes.
struct ProgramBox {
  enum class Kind {
    kArgument,
    kModule,  ///< a module with all modules in it
    kCalls,   ///< calls that a module makes itself, between those of the modules in it
    kResult,
  };
  Kind kind = Kind::kModule;
  std::string name{};     ///< "x", or the module's path, "layer1.0"; empty for the model itself
  std::string type{};     ///< the module's class, "Bottleneck", or a tensor's type, "float32"
  std::string calls{};    ///< the operators of all calls: "conv2d, batch_norm x 2, relu_"
  std::string shapes{};   ///< sizes of tensors for other boxes: "[N, 64, 56, 56]"
  std::string source{};   ///< the line of Python of the first call; empty if unknown
  double parameters = 0;  ///< elements of the parameters that are first used here
  int stage = 0;

  /// What to call it: its name, its operators, or the class of the model.
  std::string heading() const {
    if (kind == Kind::kCalls) return calls;
    if (!name.empty()) return name;
    return type.empty() ? "model" : type;
  }
};

/// Tensors that pass from a box to a later one.
struct ProgramLine {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string shapes{};
};

/// Where a stage ends and the next one begins.
struct PictureCut {
  std::size_t box = 0;  ///< the first one of the next stage
  std::int64_t bytes = 0;
};

struct ProgramPicture {
  std::string title{};
  std::vector<ProgramBox> boxes{};   ///< in the order of the calls
  std::vector<ProgramLine> lines{};  ///< sorted by `from`, then by `to`
  std::vector<PictureCut> cuts{};    ///< between boxes of different stages
  std::map<std::string, std::string>
      module_types{};  ///< classes of the modules around boxes, by path
};

/// A cut of a program before the node `node`.
struct NodeCut {
  std::size_t node = 0;
  std::int64_t bytes = 0;
};

/// Draws the content of `file`, which was read from the file `name`, with `depth` levels of
/// modules. Without `depth`, the deepest level that gives at most kUsualBoxes boxes is drawn: level
/// 1 if no level does, or level 0 if level 1 has more than kMostBoxes boxes. A box ends at each of
/// `cuts`, which are in ascending order. Takes time proportional to the size of the graph. Throws
/// ConfigError if there are more than kMostBoxes boxes or kMostLines lines.
ProgramPicture picture_of(const std::string& name, const program::Pt2File& file,
                          std::optional<int> depth, const std::vector<NodeCut>& cuts = {});

}  // namespace lockstep::cli
