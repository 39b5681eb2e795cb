// The errors of PyTorch's libraries, in one line.
#pragma once

#include <exception>
#include <string>

namespace lockstep::c10d_adapter {

/// A library's error without the path of its build, its advice and its stack. NCCL tells only the
/// kind of an error in its first line; the cause, which it tells after "Last error:", is added.
std::string essence(const std::string& text);
std::string essence(const std::exception_ptr& error);

}  // namespace lockstep::c10d_adapter
