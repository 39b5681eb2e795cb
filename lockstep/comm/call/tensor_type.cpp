#include <lockstep/comm/call/tensor_type.h>

#include <lockstep/core/strings.h>

namespace lockstep::comm {

detail::DataType data_type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return detail::DataType::kFloat32;
    case torch::kFloat64:
      return detail::DataType::kFloat64;
    case torch::kFloat16:
      return detail::DataType::kFloat16;
    case torch::kBFloat16:
      return detail::DataType::kBFloat16;
    case torch::kInt8:
      return detail::DataType::kInt8;
    case torch::kInt16:
      return detail::DataType::kInt16;
    case torch::kInt32:
      return detail::DataType::kInt32;
    case torch::kInt64:
      return detail::DataType::kInt64;
    case torch::kUInt8:
      return detail::DataType::kUInt8;
    case torch::kBool:
      return detail::DataType::kBool;
    default:
      return detail::DataType::kByte;
  }
}

std::int64_t units_per_element(torch::ScalarType type) {
  return data_type_of(type) == detail::DataType::kByte
             ? static_cast<std::int64_t>(c10::elementSize(type))
             : 1;
}

std::string type_name(torch::ScalarType type) {
  const detail::DataType ours = data_type_of(type);
  if (ours != detail::DataType::kByte) return detail::data_type_name(ours);
  switch (type) {
    case torch::kComplexHalf:
      return "complex32";
    case torch::kComplexFloat:
      return "complex64";
    case torch::kComplexDouble:
      return "complex128";
    default:
      return c10::toString(type);
  }
}

}  // namespace lockstep::comm
