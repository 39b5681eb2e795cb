// The extension module lockstep_c10d._C.
#include <chrono>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "gil.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  // Registers PyTorch's Python classes for the store and the backend.
  pybind11::module_::import("torch._C._distributed_c10d");
  module.def("create",
             torch::wrap_pybind_function(
                 [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    int world_rank, double timeout_seconds) -> c10::intrusive_ptr<c10d::Backend> {
                   const lockstep_c10d::WithoutGil without_gil;
                   const auto timeout =
                       std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
                   return c10::make_intrusive<lockstep_c10d::LockstepBackend>(store, rank, size,
                                                                              world_rank, timeout);
                 }),
             pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("world_rank"), pybind11::arg("timeout_seconds"));
  module.def("shut_down_all", &lockstep_c10d::shut_down_all);
}
