// Python's global interpreter lock (GIL). It must not be held during a wait, because the awaited
// thread may need it.
#pragma once

#include <optional>

#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>

namespace lockstep_c10d {

/// Releases the GIL for a scope, if this thread holds it. PyTorch's bindings have already released
/// it for most calls, but not for all calls that may wait, and C++ callers may or may not hold it.
class __attribute__((visibility("hidden"))) WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) release_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> release_;
};

}  // namespace lockstep_c10d
