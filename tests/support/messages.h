// Captures error messages.
#pragma once

#include <string>

namespace lockstep::testing_support {

/// The message of the `Thrown` that `function` throws. Other exceptions pass through and fail the
/// test.
template <class Thrown, class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace lockstep::testing_support
