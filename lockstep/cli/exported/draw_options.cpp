#include <lockstep/cli/exported/draw_options.h>

#include <lockstep/cli/exported/program_picture.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

constexpr const char* kProgramDraw = "program draw";
constexpr int kMostDrawnStages = 32;

}  // namespace

const NamedChoices<DrawingFormat>& drawing_formats() {
  static const NamedChoices<DrawingFormat> all = {
      {"svg", DrawingFormat::kSvg, "a picture"},
      {"text", DrawingFormat::kText, "a tree of modules"},
      {"dot", DrawingFormat::kDot, "for Graphviz"}};
  return all;
}

void add_program_draw_options(CLI::App& command, ProgramDrawArguments& to) {
  command.add_option("FILE", to.file, "File of torch.export.save")->required();
  command.add_option("--out", to.out, "File to write (default: standard output)")
      ->type_name("FILE");
  command.add_option("--format", to.format, "Format: " + choices_text(drawing_formats()))
      ->capture_default_str();
  command
      .add_option("--depth", to.depth,
                  str("Levels of modules to show: 1 draws a box for each module of the model, 2 "
                      "also their modules, 0 one box (default: as many as give at most ",
                      kUsualBoxes, " boxes)"))
      ->transform(whole_number<int>());
  command
      .add_option("--stages", to.stages,
                  str("Show the cuts that `train --strategy pipeline` makes for this number of "
                      "stages, from 2 to ",
                      kMostDrawnStages))
      ->transform(whole_number<int>());
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

DrawingFormat check_draw_options(const ProgramDrawArguments& arguments) {
  const OptionCheck check(kProgramDraw);
  if (arguments.depth) check.in_range("--depth", *arguments.depth, 0, kMostDepth);
  if (arguments.stages) check.in_range("--stages", *arguments.stages, 2, kMostDrawnStages);
  const DrawingFormat format =
      chosen_value(kProgramDraw, "--format", drawing_formats(), arguments.format);
  if (!arguments.out.empty()) {
    if (is_same_file(arguments.out, arguments.file)) {
      throw ConfigError(str(kProgramDraw, ": --out must not replace the program, got ",
                            arguments.out, "; name another file"));
    }
    check_output_file(kProgramDraw, "--out", arguments.out);
  }
  return format;
}

}  // namespace lockstep::cli
