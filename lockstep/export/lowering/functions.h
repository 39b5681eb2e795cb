// Functions that several families of operators are made of, precise in relation to each result's
// own magnitude: onnxruntime's kernels for them flush small results to zero or drop NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/export/lowering/recorded_operation.h>

namespace lockstep::onnx {

/// 1 / (1 + exp(-x)). Below -18, onnxruntime's Sigmoid is 0.
std::string sigmoid(RecordedOperation& op, const std::string& x, at::ScalarType type);

/// 1 / (1 + exp(-x)) as a widened() value.
std::string wide_sigmoid(RecordedOperation& op, const std::string& x, at::ScalarType type);

/// exp(x) - 1, also for x near 0.
std::string expm1(RecordedOperation& op, const std::string& x, at::ScalarType type);

/// Rounds floating-point numbers towards zero; `zero` has their type.
std::string truncated(RecordedOperation& op, const std::string& x, const std::string& zero);

enum class Extreme { kMinimum, kMaximum };

/// The extreme values along `axes`, which are NaN where any element is.
std::string extreme_value(RecordedOperation& op, Extreme extreme, const std::string& x,
                          at::ScalarType type, const std::vector<std::int64_t>& axes, bool keep);

/// The sum of whole numbers along `axes`, of sizes other than 0. It wraps around, whereas
/// onnxruntime's ReduceSum of whole numbers adds up in float64.
std::string whole_sum(RecordedOperation& op, const std::string& x,
                      const std::vector<std::int64_t>& axes, bool keep);

/// The p-norm along `axes`, which may be none.
std::string vector_norm(RecordedOperation& op, const std::string& x, at::ScalarType type, double p,
                        const std::vector<std::int64_t>& axes, bool keep);

}  // namespace lockstep::onnx
