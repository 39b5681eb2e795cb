// lockstep data list
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/data/data.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/core/error.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/report/json_report.h>

namespace lockstep::cli {
namespace {

struct FoundData {
  std::string name;
  std::optional<std::string> folder;
  std::string problem;  // why there is no folder; empty if the files do not exist
};

FoundData find(const std::string& name) {
  try {
    const auto folder = find_data({.name = name, .may_download = false});
    return {name, folder ? std::optional(folder->string()) : std::nullopt, ""};
  } catch (const Error& error) {
    return {name, std::nullopt, error_line(error)};
  }
}

// The folder that `data get` would use; nothing if there is none.
std::optional<std::string> cache_of(const std::string& name) {
  try {
    return data_cache_directory(name).string();
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::string text_of(const FoundData& found) {
  if (found.folder) return *found.folder;
  if (!found.problem.empty()) return found.problem;
  const auto cache = cache_of(found.name);
  return str("not here; `lockstep data get ", found.name, "` downloads it",
             cache ? " to " + *cache : "");
}

void list_data(const std::string& json_file) {
  auto json = nlohmann::ordered_json::array();
  std::size_t longest = 0;
  for (const std::string& name : known_data_names()) longest = std::max(longest, name.size());
  for (const std::string& name : known_data_names()) {
    const FoundData found = find(name);
    std::cout << name << std::string(longest + 2 - name.size(), ' ') << text_of(found) << '\n';
    const auto cache = cache_of(name);
    json.push_back({{"name", name}, {"present", found.folder.has_value()}});
    json.back()["folder"] = found.folder ? nlohmann::ordered_json(*found.folder) : nullptr;
    json.back()["cache"] = cache ? nlohmann::ordered_json(*cache) : nullptr;
    if (!found.problem.empty()) json.back()["problem"] = found.problem;
  }
  if (!json_file.empty()) report::write_text_file(json_file, bench::json_text(json));
}

}  // namespace

void add_data_list_command(CLI::App& data) {
  CLI::App* command = data.add_subcommand("list", "Show the known data sets and where they are");
  const auto json_file = std::make_shared<std::string>();
  command->add_option("--json", *json_file, "Also write the list to this JSON file")
      ->type_name("FILE")
      ->check(not_empty());
  command->callback([json_file] { list_data(*json_file); });
}

}  // namespace lockstep::cli
