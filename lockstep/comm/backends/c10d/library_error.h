// Shortens the errors of PyTorch's libraries to one line.
#pragma once

#include <exception>
#include <string>

namespace lockstep::c10d_adapter {

/// A library's error without build paths, advice and stack. NCCL's first line names only the kind
/// of the error, so the cause that follows "Last error:" is added.
std::string essence(const std::string& text);
std::string essence(const std::exception_ptr& error);

}  // namespace lockstep::c10d_adapter
