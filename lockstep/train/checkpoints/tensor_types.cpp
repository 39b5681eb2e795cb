#include <lockstep/train/checkpoints/tensor_types.h>

#include <array>
#include <utility>

namespace lockstep::train {
namespace {

constexpr std::array<std::pair<torch::ScalarType, std::string_view>, 16> kDtypes = {{
    {torch::kFloat32, "F32"},
    {torch::kFloat64, "F64"},
    {torch::kFloat16, "F16"},
    {torch::kBFloat16, "BF16"},
    {torch::kComplexFloat, "C64"},
    {torch::kFloat8_e5m2, "F8_E5M2"},
    {torch::kFloat8_e4m3fn, "F8_E4M3"},
    {torch::kInt64, "I64"},
    {torch::kInt32, "I32"},
    {torch::kInt16, "I16"},
    {torch::kInt8, "I8"},
    {torch::kUInt64, "U64"},
    {torch::kUInt32, "U32"},
    {torch::kUInt16, "U16"},
    {torch::kUInt8, "U8"},
    {torch::kBool, "BOOL"},
}};

}  // namespace

std::string_view dtype_of(torch::ScalarType type) {
  for (const auto& [scalar_type, dtype] : kDtypes) {
    if (scalar_type == type) return dtype;
  }
  return {};
}

std::optional<torch::ScalarType> scalar_type_of(std::string_view dtype) {
  for (const auto& [scalar_type, name] : kDtypes) {
    if (name == dtype) return scalar_type;
  }
  return std::nullopt;
}

}  // namespace lockstep::train
