// Which parameters of a module have sparse gradients.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep {

/// Names, as named_parameters() gives them, of the weights of torch::nn::Embedding and EmbeddingBag
/// with sparse(true) anywhere in `module`.
std::vector<std::string> sparse_embeddings(const torch::nn::Module& module);

}  // namespace lockstep
