#include <lockstep/program/torch_names.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/program/graph/operator_name.h>

namespace lockstep::program {

c10::ScalarType scalar_type(ScalarTypeCode code) {
  static constexpr std::pair<std::int64_t, c10::ScalarType> kTypes[] = {
      {1, c10::kByte},
      {2, c10::kChar},
      {3, c10::kShort},
      {4, c10::kInt},
      {5, c10::kLong},
      {6, c10::kHalf},
      {7, c10::kFloat},
      {8, c10::kDouble},
      {9, c10::ScalarType::ComplexHalf},
      {10, c10::kComplexFloat},
      {11, c10::kComplexDouble},
      {12, c10::kBool},
      {13, c10::kBFloat16},
      {28, c10::kUInt16},
      {29, c10::kFloat8_e4m3fn},
      {30, c10::kFloat8_e5m2},
      {31, c10::kFloat8_e4m3fnuz},
      {32, c10::kFloat8_e5m2fnuz},
      {33, c10::kFloat8_e8m0fnu},
      {34, c10::kUInt32},
      {35, c10::kUInt64},
  };
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const auto& type) { return type.first == code.code; });
  if (found == std::end(kTypes)) {
    throw CheckpointError(str("the dtype ", code.code, " is not supported"));
  }
  return found->second;
}

std::optional<c10::OperatorHandle> find_operator(std::string_view target) {
  const auto known = operator_name(target);
  if (!known) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({known->name, known->overload});
}

}  // namespace lockstep::program
