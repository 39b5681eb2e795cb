#include <lockstep/parallel/ddp/sparse_parameters.h>

#include <torch/nn/modules/embedding.h>

namespace lockstep::parallel {
namespace {

bool is_sparse_embedding(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>())
    return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

void find(const torch::nn::Module& module, const std::string& prefix,
          std::vector<std::string>& found) {
  if (is_sparse_embedding(module)) found.push_back(prefix + "weight");
  for (const auto& child : module.named_children()) {
    find(*child.value(), prefix + child.key() + ".", found);
  }
}

}  // namespace

std::vector<std::string> sparse_embeddings(const torch::nn::Module& module) {
  std::vector<std::string> found;
  find(module, "", found);
  return found;
}

}  // namespace lockstep::parallel
