// A minimal reader of ONNX files for tests.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <protozero/pbf_reader.hpp>

#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

struct ReadModel {
  std::int64_t ir_version = 0;
  std::int64_t opset = 0;
  std::string producer{};
  std::map<std::string, std::string> metadata{};
  std::string graph_name{};
  std::vector<std::string> operators{};  ///< operators of the nodes, in order
  std::vector<std::string> node_names{};
  std::map<std::string, std::int32_t> initializers{};  ///< names and element types
  std::map<std::string, std::string> values{};         ///< their bytes in the model's own file
  std::map<std::string, std::string> locations{};      ///< external data files by initializer
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  std::vector<std::string> unknown_inputs{};  ///< inputs of nodes that nothing makes
  /// Sizes of inputs and outputs, for example "batch,3,8,8".
  std::map<std::string, std::string> sizes{};
};

inline void read_value(protozero::pbf_reader value, std::vector<std::string>& names,
                       ReadModel& model) {
  std::string name;
  std::string sizes;
  while (value.next()) {
    if (value.tag() == 1) {
      name = value.get_string();
    } else if (value.tag() == 2) {
      protozero::pbf_reader type = value.get_message();
      type.next(1);
      protozero::pbf_reader tensor = type.get_message();
      while (tensor.next(2)) {
        protozero::pbf_reader shape = tensor.get_message();
        while (shape.next(1)) {
          protozero::pbf_reader dimension = shape.get_message();
          dimension.next();
          if (!sizes.empty()) sizes += ',';
          sizes +=
              dimension.tag() == 1 ? std::to_string(dimension.get_int64()) : dimension.get_string();
        }
      }
    } else {
      value.skip();
    }
  }
  names.push_back(name);
  model.sizes[name] = sizes;
}

inline void read_initializer(protozero::pbf_reader tensor, ReadModel& model) {
  std::string name;
  std::int32_t type = 0;
  std::string values;
  std::string location;
  while (tensor.next()) {
    if (tensor.tag() == 2) {
      type = tensor.get_int32();
    } else if (tensor.tag() == 8) {
      name = tensor.get_string();
    } else if (tensor.tag() == 9) {
      values = tensor.get_bytes();
    } else if (tensor.tag() == 13) {
      protozero::pbf_reader pair = tensor.get_message();
      pair.next(1);
      const std::string key = pair.get_string();
      pair.next(2);
      if (key == "location") location = pair.get_string();
    } else {
      tensor.skip();
    }
  }
  model.initializers[name] = type;
  model.values[name] = values;
  if (!location.empty()) model.locations[name] = location;
}

inline void read_graph(protozero::pbf_reader graph, ReadModel& model) {
  std::set<std::string> used;
  std::set<std::string> made = {""};  // an omitted input
  while (graph.next()) {
    if (graph.tag() == 1) {
      protozero::pbf_reader node = graph.get_message();
      while (node.next()) {
        if (node.tag() == 1) {
          used.insert(node.get_string());
        } else if (node.tag() == 2) {
          made.insert(node.get_string());
        } else if (node.tag() == 3) {
          model.node_names.push_back(node.get_string());
        } else if (node.tag() == 4) {
          model.operators.push_back(node.get_string());
        } else {
          node.skip();
        }
      }
    } else if (graph.tag() == 2) {
      model.graph_name = graph.get_string();
    } else if (graph.tag() == 5) {
      read_initializer(graph.get_message(), model);
    } else if (graph.tag() == 11) {
      read_value(graph.get_message(), model.inputs, model);
    } else if (graph.tag() == 12) {
      read_value(graph.get_message(), model.outputs, model);
    } else {
      graph.skip();
    }
  }
  made.insert(model.inputs.begin(), model.inputs.end());
  for (const auto& [name, type] : model.initializers) made.insert(name);
  std::set_difference(used.begin(), used.end(), made.begin(), made.end(),
                      std::back_inserter(model.unknown_inputs));
}

inline ReadModel read_model(const std::filesystem::path& path) {
  const std::string content = read_text(path);
  ReadModel model;
  protozero::pbf_reader reader(content);
  while (reader.next()) {
    if (reader.tag() == 1) {
      model.ir_version = reader.get_int64();
    } else if (reader.tag() == 2) {
      model.producer = reader.get_string();
    } else if (reader.tag() == 7) {
      read_graph(reader.get_message(), model);
    } else if (reader.tag() == 8) {
      protozero::pbf_reader opset = reader.get_message();
      while (opset.next(2)) model.opset = opset.get_int64();
    } else if (reader.tag() == 14) {
      protozero::pbf_reader pair = reader.get_message();
      pair.next(1);
      const std::string key = pair.get_string();
      pair.next(2);
      model.metadata[key] = pair.get_string();
    } else {
      reader.skip();
    }
  }
  return model;
}

}  // namespace lockstep::testing_support
