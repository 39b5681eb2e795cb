// A backend of PyTorch's own library (c10d::Backend: Gloo, NCCL) as a backend of ours.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backend.h>

namespace lockstep::c10d_adapter {

struct AdapterOptions {
  std::string name;                   ///< "gloo", "nccl"
  bool averages = false;              ///< whether the library knows the average itself
  std::chrono::milliseconds timeout{0};
  torch::Device device = torch::kCPU;  ///< where allocate() allocates
};

/// `store` carries the reason of an abort to ranks whose operation failed.
std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options);

}  // namespace lockstep::c10d_adapter
