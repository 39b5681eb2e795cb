// Compares recordings of one module with different inputs.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/export/trace/extent.h>
#include <lockstep/export/trace/module_locations.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// A constant of the first recording that differs in another one.
struct BakedConstant {
  const torch::jit::Node* user = nullptr;  ///< the operation that takes it
  std::string text{};                      ///< "2", "a tensor [2, 3]"
  std::optional<Extent> extent{};          ///< how it follows the batch, if that is known
  const torch::jit::Value* value = nullptr;
};

/// A recording with another batch size.
struct BatchProbe {
  std::int64_t batch = 0;
  const Recording* recording = nullptr;
};

/// Throws ConfigError, which names the first difference, unless both recordings have the same
/// operations on the same operands. `condition` says how the inputs differed: "other values".
void require_same_operations(const Recording& first, const Recording& other,
                             const ModuleLocations& locations, const std::string& condition);

/// The constants of `first` that differ in any of `others`, which have the same operations.
std::vector<BakedConstant> differing_constants(const Recording& first,
                                               const std::vector<const Recording*>& others);

/// The constants of `first` that change with the batch. There must be at least two probes: the
/// first shows how they change, the others confirm it.
std::vector<BakedConstant> following_constants(const Recording& first, std::int64_t batch,
                                               const std::vector<BatchProbe>& probes);

/// The sizes of all tensors. Throws ConfigError, which names the place, if a size changes in
/// `others`, or if its change with the batch is not linear (a factor and an addend).
std::unordered_map<const torch::jit::Value*, Extents> traced_sizes(
    const Recording& first, const std::vector<const Recording*>& others, std::int64_t batch,
    const std::vector<BatchProbe>& probes, const ModuleLocations& locations);

/// The sizes of the tensors that each operation of forward() returned, also of those on which no
/// output depends; none for an operation whose size follows the batch in no known way.
std::vector<std::vector<std::optional<Extents>>> sizes_of_calls(
    const Recording& first, std::int64_t batch, const std::vector<BatchProbe>& probes);

/// Finds out how the numbers in the calls of `first` follow the batch (Argument::extent), and which
/// arguments vary in another way. Throws ConfigError if a probe has other calls.
void compare_arguments_of_calls(Recording& first, std::int64_t batch,
                                const std::vector<BatchProbe>& probes);

/// Whether two constants have the same type and value. NaN equals NaN.
bool same_constant(const c10::IValue& a, const c10::IValue& b);

/// Whether two tensors have the same type, sizes and values. NaN equals NaN.
bool same_tensor(const at::Tensor& a, const at::Tensor& b);

/// The operation that takes a constant, directly or as a member of a list.
const torch::jit::Node* user_of(const torch::jit::Value& constant);

}  // namespace lockstep::onnx
