// The options --json and --trace of the benchmarks that print rows.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

/// Adds --json. `Text` is std::string or std::optional<std::string>.
template <class Text>
void add_rows_json_option(CLI::App& command, Text& to) {
  command.add_option("--json", to, "Also write the rows to this JSON file (its folder must exist)")
      ->type_name("FILE");
}

/// Adds --trace. `what` says what is recorded for each row, without a full stop.
template <class Text>
void add_row_traces_option(CLI::App& command, Text& to, const std::string& what) {
  command
      .add_option("--trace", to, what + "; writes one trace per row for https://ui.perfetto.dev")
      ->type_name("FOLDER");
}

}  // namespace lockstep::cli
