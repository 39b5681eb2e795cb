// Python's lock, which must not be held while we wait: the thread that we wait for may need it.
#pragma once

#include <optional>

#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>

namespace lockstep_c10d {

/// Gives up the lock for a scope where this thread holds it. PyTorch's bindings mostly did already,
/// but not for all of what may wait, and C++ callers hold it or not.
class __attribute__((visibility("hidden"))) WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) release_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> release_;
};

}  // namespace lockstep_c10d
