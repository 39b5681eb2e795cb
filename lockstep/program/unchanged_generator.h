// A scope that restores the default random generator of the CPU.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace lockstep::program {

/// Restores the generator to its state at construction.
class UnchangedGenerator {
 public:
  UnchangedGenerator() {
    const std::scoped_lock lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~UnchangedGenerator() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(state_);
  }
  UnchangedGenerator(const UnchangedGenerator&) = delete;
  UnchangedGenerator& operator=(const UnchangedGenerator&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor state_;
};

}  // namespace lockstep::program
