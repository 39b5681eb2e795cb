// Aborts the process groups of a rank that fails, so that no other rank waits for it.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <type_traits>

#include <lockstep/core/error.h>

namespace lockstep::train {

/// A function that aborts every group in which other ranks may wait for this rank. It must not
/// block.
using EndAll = std::function<void(const std::string& reason)>;

/// Returns the result of `function`. If `function` throws, calls `end_all` with the first line of
/// the error message and rethrows the error.
template <class Function>
auto end_all_if_it_throws(const EndAll& end_all, const Function& function)
    -> std::invoke_result_t<const Function&> {
  try {
    return function();
  } catch (const std::exception& error) {
    end_all(first_line(error));
    throw;
  } catch (...) {
    end_all(kForeignException);
    throw;
  }
}

}  // namespace lockstep::train
