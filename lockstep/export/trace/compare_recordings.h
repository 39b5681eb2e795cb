// What recordings of one module with different inputs have in common.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/export/trace/extent.h>
#include <lockstep/export/trace/places.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// A constant of the first recording that another one has otherwise.
struct BakedConstant {
  const torch::jit::Node* user = nullptr;  ///< the operation that takes it
  std::string text{};                      ///< "2", "a tensor [2, 3]"
  std::optional<Extent> extent{};          ///< how it follows the batch, where it is seen to
  const torch::jit::Value* value = nullptr;
};

/// A recording with another batch size.
struct BatchProbe {
  std::int64_t batch = 0;
  const Recording* recording = nullptr;
};

/// ConfigError, which names the first place, unless both recorded the same operations on the same
/// operands. `condition` says what was different about the inputs: "other values".
void require_same_operations(const Recording& first, const Recording& other, const Places& places,
                             const std::string& condition);

/// The constants of `first` that differ in any of `others`, which have the same operations.
std::vector<BakedConstant> differing_constants(const Recording& first,
                                               const std::vector<const Recording*>& others);

/// The constants of `first` that differ with the batch. Two probes: the first one shows how, the
/// second one proves it.
std::vector<BakedConstant> following_constants(const Recording& first, std::int64_t batch,
                                               const std::vector<BatchProbe>& probes);

/// The sizes of all tensors. ConfigError, which names the place, when one changes with `others` or
/// changes with the batch otherwise than by a factor and an addend.
std::unordered_map<const torch::jit::Value*, Extents> traced_sizes(
    const Recording& first, const std::vector<const Recording*>& others, std::int64_t batch,
    const std::vector<BatchProbe>& probes, const Places& places);

/// The operation that takes a constant, also as a member of a list.
const torch::jit::Node* user_of(const torch::jit::Value& constant);

}  // namespace lockstep::onnx
