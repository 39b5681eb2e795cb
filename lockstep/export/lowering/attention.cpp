// Scaled dot-product attention.
#include <cmath>
#include <limits>

#include <lockstep/export/lowering/functions.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// An additive mask that hides later positions.
std::string causal_mask(RecordedOperation& op, std::int64_t queries, std::int64_t keys) {
  const at::Tensor hidden = at::ones({queries, keys}, at::kBool).triu(1);
  const at::Tensor mask = at::zeros({queries, keys}, at::kFloat)
                              .masked_fill(hidden, -std::numeric_limits<float>::infinity());
  return op.graph().constant(mask.to(op.result_type()), "");
}

std::string additive_mask(RecordedOperation& op, std::size_t i, at::ScalarType type) {
  if (op.type(i) != at::kBool) return op.tensor_as(i, type);
  const double hidden = -std::numeric_limits<double>::infinity();
  return op.add("Where",
                {op.tensor(i), op.graph().scalar(0, type), op.graph().scalar(hidden, type)});
}

// The softmax of each row of scores. A row that a mask hides as a whole has weights of 0: LibTorch
// defines them, whereas a plain softmax divides by 0.
std::string attention_weights(RecordedOperation& op, const std::string& scores,
                              at::ScalarType type) {
  const std::string weights = op.add("Softmax", {scores}, {{"axis", -1}});
  if (!op.has(3)) return weights;
  const std::string hidden = op.graph().scalar(-std::numeric_limits<double>::infinity(), type);
  const std::string largest = extreme_value(op, Extreme::kMaximum, scores, type, {-1}, true);
  const std::string is_hidden = op.add("Equal", {largest, hidden});
  return op.add("Where", {is_hidden, op.graph().scalar(0, type), weights});
}

// scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa):
// softmax(query key^T scale + mask) value
void lower_attention(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (op.number_or(4, 0) != 0) op.reject("dropout_p must be 0, got " + str(op.number(4)));
  if (op.arguments() > 7 && op.flag(7)) op.reject("enable_gqa");
  const Extents& query = op.sizes(0);
  const Extents& key = op.sizes(1);
  const std::size_t rank = query.size();
  const auto width = static_cast<double>(op.fixed(query[rank - 1], "the query's width"));
  const double scale = op.number_or(6, 1 / std::sqrt(width));
  std::vector<std::int64_t> order;
  for (std::size_t d = 0; d < rank; ++d) order.push_back(static_cast<std::int64_t>(d));
  std::swap(order[rank - 1], order[rank - 2]);
  // As in LibTorch, the square root of the scale on each side keeps float16 in its range.
  const double side = std::sqrt(std::abs(scale));
  const std::string root = op.graph().scalar(side, type);
  const std::string signed_root = op.graph().scalar(scale < 0 ? -side : side, type);
  const std::string scaled_query = op.add("Mul", {op.tensor(0), signed_root});
  const std::string scaled_key = op.add("Mul", {op.transpose(op.tensor(1), order), root});
  std::string scores = op.add("MatMul", {scaled_query, scaled_key});
  if (op.has(3)) scores = op.add("Add", {scores, additive_mask(op, 3, type)});
  if (op.flag(5)) {
    const std::int64_t queries = op.fixed(query[rank - 2], "the number of queries");
    const std::int64_t keys = op.fixed(key[rank - 2], "the number of keys");
    scores = op.add("Add", {scores, causal_mask(op, queries, keys)});
  }
  op.result("MatMul", {attention_weights(op, scores, type), op.tensor(2)});
}

constexpr Operator kAttention[] = {{"scaled_dot_product_attention", lower_attention}};

}  // namespace

Family attention_operators() { return kAttention; }

}  // namespace lockstep::onnx
