// Finds the parameters of a module that have sparse gradients.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::parallel {

/// Names, as in named_parameters(), of the weights of every torch::nn::Embedding and EmbeddingBag
/// with sparse(true) in `module`.
std::vector<std::string> sparse_embeddings(const torch::nn::Module& module);

}  // namespace lockstep::parallel
