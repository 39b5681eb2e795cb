#include <lockstep/parallel/pipeline/saved_buffers.h>

#include <torch/utils.h>

namespace lockstep::pipeline {

SavedBuffers::SavedBuffers(const torch::nn::Module& module) : buffers_(module.buffers()) {
  for (const torch::Tensor& buffer : buffers_) values_.push_back(buffer.detach().clone());
}

void SavedBuffers::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].variable_data().copy_(values_[i]);  // has a version counter of its own
  }
}

}  // namespace lockstep::pipeline
