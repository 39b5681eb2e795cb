// Files of torch.export.save for tests: small valid ones, and pieces from which to build invalid
// ones.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing_support {

/// The graph of a model that returns x * scale + shift, as PyTorch 2.13 writes it. `scale` is a
/// parameter, `mean` a buffer that is not used, and `shift` a constant, of 3 float32 each. x has
/// the shape [s0, 3].
nlohmann::json small_model();

/// small_model() with arguments of all kinds, a graph in a graph, and a result of all structures.
nlohmann::json large_model();

/// {"as_tensor": {"name": name}}
nlohmann::json tensor_argument(const std::string& name);

/// The description of a contiguous tensor of float32.
nlohmann::json tensor_meta(const std::vector<std::int64_t>& sizes);

/// A call of an operator whose arguments have no names.
nlohmann::json call(const std::string& target, const std::vector<nlohmann::json>& arguments,
                    const std::vector<nlohmann::json>& outputs);

/// A graph in an argument of a higher-order operator.
nlohmann::json graph_argument(const std::vector<nlohmann::json>& inputs,
                              const std::vector<nlohmann::json>& nodes,
                              const std::vector<nlohmann::json>& outputs);

/// Structures as torch.utils._pytree writes them. Most contexts are the text of JSON.
nlohmann::json leaf_spec();
nlohmann::json structure_spec(const std::string& type, const nlohmann::json& context,
                              const std::vector<nlohmann::json>& children);
/// The text of a structure in a model.
std::string spec_text(const nlohmann::json& structure);

/// Lets `model` return `leaves` values in a structure.
void set_results(nlohmann::json& model, const nlohmann::json& structure, std::size_t leaves);

/// The entries of an archive, in order.
using ArchiveEntries = std::vector<std::pair<std::string, std::string>>;

/// The archive of small_model() in the layout of PyTorch 2.9 and later.
ArchiveEntries pt2_entries();
/// In the layout of PyTorch 2.8, with files of torch.save.
ArchiveEntries pt2_entries_of_2_8();
/// In the layout of PyTorch 2.7, without a folder.
ArchiveEntries pt2_entries_of_2_7();

/// The content of the entry `name`, which must exist.
std::string& entry(ArchiveEntries& entries, const std::string& name);

std::string zip_of(const ArchiveEntries& entries);

/// The bytes of the tensors `scale`, `mean` and `shift`.
std::string scale_bytes();
std::string mean_bytes();
std::string shift_bytes();

}  // namespace lockstep::testing_support
