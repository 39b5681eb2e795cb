// lockstep program draw FILE.pt2
#include <iostream>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cli/exported/draw_options.h>
#include <lockstep/cli/exported/exported.h>
#include <lockstep/cli/exported/program_drawings.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/choose_cuts.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>

namespace lockstep::cli {
namespace {

// Looking for cuts takes time and memory proportional to the square of the number of nodes.
constexpr std::size_t kMostNodesToCut = 4000;

// The cuts that the strategy pipeline makes to get the number of stages that the user asks for.
// ConfigError if it cannot cut the program.
std::vector<NodeCut> cuts_in(const ProgramDrawArguments& arguments,
                             const program::ExportedGraph& program) {
  if (!arguments.stages) return {};
  if (program.graph.nodes.size() > kMostNodesToCut) {
    throw ConfigError(str("program draw: --stages: ", arguments.file, " has ",
                          program.graph.nodes.size(), " nodes, but only programs of at most ",
                          kMostNodesToCut, " can be drawn in stages", "; remove --stages"));
  }
  if (const std::string* const argument = program::changed_argument(program)) {
    throw ConfigError(str("program draw: --stages: ", arguments.file, " changes its argument '",
                          formats::printable(*argument),
                          "' in place, so that it cannot be cut; remove --stages"));
  }
  const auto cuts = program::cuts_of(program);
  std::vector<NodeCut> chosen;
  for (const std::size_t node :
       program::choose_cuts(str("program draw: ", arguments.file), cuts,
                            program::bytes_of_nodes(program), *arguments.stages)) {
    chosen.push_back({.node = node, .bytes = cuts[node].bytes});
  }
  return chosen;
}

std::string drawing_of(const ProgramPicture& picture, DrawingFormat format) {
  switch (format) {
    case DrawingFormat::kSvg:
      return program_svg(picture);
    case DrawingFormat::kText:
      return program_text(picture);
    case DrawingFormat::kDot:
      break;
  }
  return program_dot(picture);
}

void draw_program(const ProgramDrawArguments& arguments) {
  const DrawingFormat format = check_draw_options(arguments);
  const MappedFile mapped(arguments.file);
  const program::Pt2File file = program::parse_pt2_file(mapped.bytes(), arguments.file);
  const ProgramPicture picture =
      picture_of(arguments.file, file, arguments.depth, cuts_in(arguments, file.program));
  const std::string drawing = drawing_of(picture, format);
  if (arguments.out.empty()) {
    std::cout << drawing;
  } else {
    report::write_text_file(arguments.out, drawing);
    std::cout << picture.title << "\ndrawn in " << arguments.out << '\n';
  }
  report::flush_output(std::cout);
}

}  // namespace

void add_program_draw_command(CLI::App& program) {
  CLI::App* const command = program.add_subcommand(
      "draw", "Draw a program's modules, the tensors between them, and the stages of a pipeline");
  const auto arguments = std::make_shared<ProgramDrawArguments>();
  add_program_draw_options(*command, *arguments);
  command->callback([arguments] { draw_program(*arguments); });
}

}  // namespace lockstep::cli
