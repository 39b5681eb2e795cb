#include <lockstep/parallel/pipeline/saved_buffers.h>

#include <torch/utils.h>

namespace lockstep::pipeline {

SavedBuffers::SavedBuffers(const torch::nn::Module& module) : buffers_(module.buffers()) {
  for (const torch::Tensor& buffer : buffers_) values_.push_back(buffer.detach().clone());
}

void SavedBuffers::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    // Version counters cannot be compared instead: batch normalisation updates its statistics
    // without raising theirs. On GPUs the workers of one device share a stream, and comparing
    // values would wait for it.
    if (buffers_[i].is_cpu() && buffers_[i].equal(values_[i])) continue;
    buffers_[i].variable_data().copy_(values_[i]);  // this has a separate version counter
  }
}

}  // namespace lockstep::pipeline
