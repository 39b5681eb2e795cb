// Tensors made from sizes alone. Those of fixed sizes are computed at export time (translate.cpp);
// here are those that follow the batch, or that overwrite another tensor.
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

void fill_with(RecordedOperation& op, const std::string& value) {
  op.result("Expand", {value, op.graph().sizes(op.result_sizes())});
}

void lower_zeros(RecordedOperation& op, const Operator&) {
  fill_with(op, op.graph().scalar(0, op.result_type()));
}

void lower_ones(RecordedOperation& op, const Operator&) {
  fill_with(op, op.graph().scalar(1, op.result_type()));
}

// full(sizes, value), full_like(x, value), fill_(x, value)
void lower_full(RecordedOperation& op, const Operator&) {
  fill_with(op, op.tensor_as(1, op.result_type()));
}

// new_full(x, sizes, value)
void lower_new_full(RecordedOperation& op, const Operator&) {
  fill_with(op, op.tensor_as(2, op.result_type()));
}

// arange(end), arange(start, end), arange(start, end, step), each followed by four arguments for
// the kind of tensor. The number of elements is taken from the result.
void lower_arange(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const double start = op.arguments() > 5 ? op.number(0) : 0;
  const double step = op.arguments() > 6 ? op.number(2) : 1;
  const std::string count = op.squeeze(op.graph().sizes(op.result_sizes()), {0});
  const std::string numbers =
      op.add("Range", {op.graph().scalar(0, at::kLong), count, op.graph().scalar(1, at::kLong)});
  // LibTorch computes the elements of floats in double.
  const at::ScalarType wide = at::isFloatingType(type) ? at::kDouble : type;
  const std::string steps =
      op.add("Mul", {op.cast(numbers, at::kLong, wide), op.graph().scalar(step, wide)});
  const std::string elements = op.add("Add", {steps, op.graph().scalar(start, wide)});
  op.bind(op.cast(elements, wide, type));
}

constexpr Operator kCreation[] = {
    {"arange", lower_arange},    {"copy", lower_full},       {"empty", lower_zeros},
    {"empty_like", lower_zeros}, {"fill", lower_full},       {"full", lower_full},
    {"full_like", lower_full},   {"new_empty", lower_zeros}, {"new_full", lower_new_full},
    {"new_ones", lower_ones},    {"new_zeros", lower_zeros}, {"ones", lower_ones},
    {"ones_like", lower_ones},   {"zero", lower_zeros},      {"zeros", lower_zeros},
    {"zeros_like", lower_zeros},
};

}  // namespace

Family creation_operators() { return kCreation; }

}  // namespace lockstep::onnx
