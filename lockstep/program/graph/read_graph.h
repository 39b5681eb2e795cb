// Reads the JSON of an exported program.
#pragma once

#include <string_view>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// The schema that PyTorch 2.7 to 2.14 write. A newer minor version may add fields, which are
/// ignored unless a node needs them.
inline constexpr std::int64_t kSchemaVersion = 8;

/// Returns the program in `text`, models/model.json of an archive. Every name in it is defined
/// before its use. Throws a CheckpointError that begins with `name` and states the place
/// ("graph_module.graph.nodes[3].inputs[0]: ...") if the text is not such JSON, has another schema
/// version, or names something that is not supported (custom objects, tokens).
ExportedGraph read_graph(std::string_view text, std::string_view name);

/// Where the tensor `TensorDescription` of a payload (weights, constants) lies in the archive.
struct Payload {
  std::string path{};  ///< within data/weights/ or data/constants/
  bool is_pickled = false;
  bool is_parameter = false;
  TensorDescription tensor{};
};

/// Returns the payloads in `text`, model_weights_config.json or model_constants_config.json.
std::map<std::string, Payload> read_payloads(std::string_view text, std::string_view name);

}  // namespace lockstep::program
