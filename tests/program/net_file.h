// Writes files of torch.export.save whose nets a test describes node by node.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep::testing_support {

class NetFile {
 public:
  using Json = nlohmann::json;
  using Arguments = std::vector<std::pair<std::string, Json>>;

  NetFile();

  /// Returns the name of the value in the graph.
  std::string parameter(const std::string& name, const torch::Tensor& tensor);
  std::string buffer(const std::string& name, const torch::Tensor& tensor);
  std::string constant(const std::string& name, const torch::Tensor& tensor);
  /// A float32 argument; a size of 0 stands for the symbol s0.
  std::string input(const std::string& name, const std::vector<std::int64_t>& sizes);
  /// An argument that the export has fixed to `value`.
  void fixed_input(const std::string& name, const Json& value);
  /// Adds a call that returns one tensor of `sizes`, made by the module `path`.
  std::string call(const std::string& target, const Arguments& arguments,
                   const std::vector<std::int64_t>& sizes, const std::string& path = "",
                   const std::string& type = "net.Net");
  /// Adds a call that returns `count` tensors of `sizes`, one by one or as a list.
  std::vector<std::string> calls(const std::string& target, const Arguments& arguments,
                                 std::size_t count, const std::vector<std::int64_t>& sizes,
                                 bool as_list = false, const std::string& path = "",
                                 const std::string& type = "net.Net");
  /// Adds a call that returns a number.
  std::string number(const std::string& target, const Arguments& arguments);
  /// Without a name the model returns one tensor, otherwise a dict.
  void output(const std::string& value, const std::string& key = "");
  /// Adds None to the dict that the model returns.
  void output_none(const std::string& key);

  /// Writes `value` to the buffer `name` after the last call.
  void write_to_buffer(const std::string& value, const std::string& name);

  /// The calls, inputs and outputs of this net as the graph of a higher-order operator.
  Json graph() const;

  /// Replaces the condition on the arguments.
  void guard(const std::string& condition) { guard_ = condition; }

  void write(const std::filesystem::path& path) const;

  static Json tensor(const std::string& value) { return {{"as_tensor", {{"name", value}}}}; }
  static Json integer(std::int64_t value) { return {{"as_int", value}}; }
  static Json real(double value) { return {{"as_float", value}}; }
  static Json truth(bool value) { return {{"as_bool", value}}; }
  static Json symbol(const std::string& value) { return {{"as_sym_int", {{"as_name", value}}}}; }

 private:
  std::string state(const char* kind, const std::string& name, const torch::Tensor& tensor);
  void describe(const std::string& value, const std::vector<std::int64_t>& sizes,
                bool has_gradient);
  void add_call(const std::string& target, const Arguments& arguments, const Json& outputs,
                const std::string& path, const std::string& type);

  Json inputs_, input_specs_, user_inputs_, user_specs_, nodes_, outputs_, output_specs_, values_;
  std::vector<std::string> arguments_, keys_;
  std::vector<std::pair<std::string, torch::Tensor>> weights_, constants_;
  std::optional<std::string> guard_;
  int calls_ = 0;
};

/// A classifier of [N, 6] with batch normalization, dropout, a ReLU in place, and a weight that the
/// first and the last layer share. Returns {"logits": [N, 6], "hidden": [N, 6]}.
NetFile small_classifier();

/// small_classifier() in LibTorch's own functions, with the parameters and buffers in `net`.
torch::Tensor logits_of(const torch::nn::Module& net, const torch::Tensor& x, bool training);

}  // namespace lockstep::testing_support
