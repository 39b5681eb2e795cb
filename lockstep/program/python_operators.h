// Arithmetic of sizes and other numbers, as Python does it.
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace lockstep::program {

/// Throws a ConfigError if the numbers have no result: division by zero, or beyond 64 bits.
using PythonOperator = c10::IValue (*)(std::span<const c10::IValue> operands);

/// The function that a graph calls `target`: "_operator.mul", "math.trunc", "torch.sym_max". Null
/// if there is none.
PythonOperator python_operator(std::string_view target);

}  // namespace lockstep::program
