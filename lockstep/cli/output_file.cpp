#include <lockstep/cli/output_file.h>

#include <lockstep/core/error.h>
#include <lockstep/report/json_report.h>

namespace lockstep::cli {
namespace {
namespace fs = std::filesystem;
}  // namespace

void check_output_file(const std::string& command, const std::string& option,
                       const fs::path& file) {
  if (file.empty()) return;
  const auto folder = file.parent_path();
  std::error_code ignored;
  if (!folder.empty() && !fs::exists(folder, ignored)) {
    throw ConfigError(str(command, ": ", option, ": the folder ", folder.string(),
                          " does not exist; create it first"));
  }
  if (fs::is_directory(file, ignored)) {
    throw ConfigError(
        str(command, ": ", option, " must be a file, got ", file.string(), ": it is a folder"));
  }
  report::JsonReport(file).on_run_begin({});
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  const bool same = fs::equivalent(a, b, error);
  if (!error && same) return true;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

void require_no_input(const std::string& command, const std::string& option, const fs::path& out,
                      const std::vector<fs::path>& inputs) {
  for (const fs::path& input : inputs) {
    for (const fs::path& file :
         {input, input / "run.json", input / "trace.json", input / "metrics.csv"}) {
      std::error_code ignored;
      if (fs::is_directory(file, ignored) || !is_same_file(out, file)) continue;
      throw ConfigError(str(command, ": ", option, " must not replace what a run has left, got ",
                            out.string(), "; name another file"));
    }
  }
}

void check_two_outputs(const std::string& command, const std::string& option, const fs::path& out,
                       const fs::path& json) {
  check_output_file(command, option, out);
  check_output_file(command, "--json", json);
  if (out.empty() || json.empty() || !is_same_file(out, json)) return;
  throw ConfigError(str(command, ": ", option, " and --json must name different files, got ",
                        out.string(), " for both"));
}

fs::path check_output_files(const std::string& command, const std::string& option,
                            const fs::path& out, const fs::path& json) {
  check_two_outputs(command, option, out, json);
  const fs::path file = report::behind_links(out);
  std::error_code ignored;
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored)) {
    throw ConfigError(str(command, ": ", option, " must be a file, got ", out.string(),
                          ", which is a device, a pipe or a socket"));
  }
  return file;
}

}  // namespace lockstep::cli
