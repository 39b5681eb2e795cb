// lockstep program info FILE.pt2
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/cli/exported/exported.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/output_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/graph/modes.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/graph/saturated.h>
#include <lockstep/program/graph/signature.h>
#include <lockstep/program/graph_cuts.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

struct ProgramInfoArguments {
  std::string file;
  std::string json;
};

// How much there is of parameters, or of buffers. A tied parameter counts once.
struct Amount {
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;  // memory in the file, less than an expanded tensor seems to have
};

Amount amount_of_kind(const program::Pt2File& file, program::InputSpec::Kind kind) {
  Amount amount;
  std::vector<const std::byte*> known;
  for (const program::InputSpec& input : file.program.inputs) {
    if (input.kind != kind || !input.persistent) continue;
    const program::StoredTensor& tensor = file.state.at(input.target);
    if (std::find(known.begin(), known.end(), tensor.storage.data()) != known.end()) continue;
    known.push_back(tensor.storage.data());
    ++amount.tensors;
    amount.elements = program::saturated_sum(amount.elements, program::elements_of(tensor));
    amount.bytes += static_cast<std::int64_t>(tensor.storage.size());
  }
  return amount;
}

void count_operators(const program::Graph& graph, std::map<std::string, int>& counts) {
  for (const program::Node& node : graph.nodes) {
    ++counts[node.target.substr(node.target.starts_with("torch.ops.") ? 10 : 0)];
    for (const program::NamedArgument& input : node.inputs) {
      const auto* inner = std::get_if<program::Subgraph>(&input.argument.value);
      if (inner != nullptr) count_operators(*inner->graph, counts);
    }
  }
}

struct Places {
  std::size_t count = 0;
  std::int64_t least_bytes = 0;
  std::int64_t most_bytes = 0;
};

Places places_of(const std::vector<program::Cut>& cuts) {
  Places places;
  for (const program::Cut& cut : cuts) {
    if (!cut.obstacle.empty()) continue;
    places.least_bytes = places.count == 0 ? cut.bytes : std::min(places.least_bytes, cut.bytes);
    places.most_bytes = std::max(places.most_bytes, cut.bytes);
    ++places.count;
  }
  return places;
}

void print_tensors(const char* heading, const std::vector<program::TensorSignature>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::cout << (i == 0 ? heading : "            ") << tensors[i].name << ": "
              << type_text(tensors[i]) << (tensors[i].is_used ? "\n" : ", unused\n");
  }
}

nlohmann::ordered_json json_of(const std::vector<program::TensorSignature>& tensors) {
  auto json = nlohmann::ordered_json::array();
  for (const program::TensorSignature& tensor : tensors) {
    auto sizes = nlohmann::ordered_json::array();
    for (const auto& size : tensor.sizes) {
      sizes.push_back(size ? nlohmann::ordered_json(*size) : nlohmann::ordered_json());
    }
    json.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"sizes", sizes}});
    if (!tensor.is_used) json.back()["unused"] = true;
  }
  return json;
}

nlohmann::ordered_json json_of(const Amount& amount) {
  return {{"tensors", amount.tensors}, {"elements", amount.elements}, {"bytes", amount.bytes}};
}

void run(const ProgramInfoArguments& arguments) {
  if (!arguments.json.empty()) check_output_file("program info", "--json", arguments.json);
  const MappedFile mapped(arguments.file);
  const program::Pt2File file = program::parse_pt2_file(mapped.bytes(), arguments.file);
  const program::ProgramSignature signature = program::signature_of(file.program);
  using Kind = program::InputSpec::Kind;
  const Amount parameters = amount_of_kind(file, Kind::kParameter);
  const Amount buffers = amount_of_kind(file, Kind::kBuffer);
  std::map<std::string, int> operators;
  count_operators(file.program.graph, operators);
  const std::vector<program::Cut> cuts = program::cuts_of(file.program);
  const Places places = places_of(cuts);
  const std::vector<std::string> fixed_modes =
      program::fixed_modes(file.program.graph, program::export_modes(file.program.graph));

  const auto amount_text = [](const Amount& amount) {
    return str(report::count_text(static_cast<double>(amount.elements)), " in ",
               amount_of(amount.tensors, "tensor"), ", ",
               report::bytes_text(static_cast<double>(amount.bytes)));
  };
  std::cout << "exported by PyTorch "
            << (file.program.torch_version.empty() ? "of an unknown version"
                                                   : file.program.torch_version)
            << "\n";
  print_tensors("inputs      ", signature.inputs);
  print_tensors("outputs     ", signature.outputs);
  std::cout << "parameters  " << amount_text(parameters) << "\nbuffers     " << amount_text(buffers)
            << "\nnodes       " << file.program.graph.nodes.size() << " calls of "
            << amount_of(static_cast<std::int64_t>(operators.size()), "operator") << '\n';
  std::vector<std::pair<std::string, int>> ordered(operators.begin(), operators.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [name, count] : ordered) {
    std::cout << "            " << name << (count == 1 ? "" : str(" x ", count)) << '\n';
  }
  std::cout << "stages      ";
  if (places.count == 0) {
    const std::string* const argument = program::changed_argument(file.program);
    std::cout << "the graph cannot be cut"
              << (argument == nullptr ? ""
                                      : str(", because it changes its argument '",
                                            formats::printable(*argument), "' in place"))
              << '\n';
  } else {
    std::cout << amount_of(static_cast<std::int64_t>(places.count), "place") << " for a cut, "
              << report::bytes_text(static_cast<double>(places.least_bytes)) << " to "
              << report::bytes_text(static_cast<double>(places.most_bytes))
              << " cross there with the batch of the export\n";
  }
  for (std::size_t i = 0; i < fixed_modes.size(); ++i) {
    std::cout << (i == 0 ? "fixed modes " : "            ") << fixed_modes[i] << '\n';
  }
  if (arguments.json.empty()) return;
  auto cut_rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i].obstacle.empty()) {
      cut_rows.push_back({{"before", file.program.graph.nodes[i].name}, {"bytes", cuts[i].bytes}});
    }
  }
  const nlohmann::ordered_json json{{"torch_version", file.program.torch_version},
                                    {"inputs", json_of(signature.inputs)},
                                    {"outputs", json_of(signature.outputs)},
                                    {"parameters", json_of(parameters)},
                                    {"buffers", json_of(buffers)},
                                    {"nodes", file.program.graph.nodes.size()},
                                    {"operators", operators},
                                    {"cuts", cut_rows},
                                    {"fixed_modes", fixed_modes}};
  report::write_text_file(arguments.json, bench::json_text(json));
}

}  // namespace

void add_program_info_command(CLI::App& program) {
  CLI::App* const command = program.add_subcommand(
      "info", "Show what a program takes and returns, its operators, and where it can be cut");
  const auto to = std::make_shared<ProgramInfoArguments>();
  command->add_option("FILE", to->file, "File of torch.export.save")->required();
  command->add_option("--json", to->json, "Also write the output to this JSON file")
      ->type_name("FILE");
  for (CLI::Option* option : command->get_options()) option->check(not_empty());
  command->callback([to] { run(*to); });
}

}  // namespace lockstep::cli
