// Borders around a tensor.
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// LibTorch lists (before, after) pairs from the last dimension on; ONNX lists all befores, then all
// afters.
std::vector<std::int64_t> onnx_pads(const std::vector<std::int64_t>& pads, std::size_t rank) {
  std::vector<std::int64_t> result(2 * rank, 0);
  for (std::size_t i = 0; i + 1 < pads.size(); i += 2) {
    const std::size_t dimension = rank - 1 - i / 2;
    result[dimension] = pads[i];
    result[rank + dimension] = pads[i + 1];
  }
  return result;
}

std::string padded(RecordedOperation& op, const char* mode, const std::string& value) {
  const auto pads = onnx_pads(op.integers(1), op.sizes(0).size());
  return op.add("Pad", {op.tensor(0), op.graph().integers(pads), value}, {{"mode", mode}});
}

// Circular padding: the end of each dimension before it, and its beginning after it.
std::string wrapped(RecordedOperation& op) {
  const std::size_t rank = op.sizes(0).size();
  const auto pads = onnx_pads(op.integers(1), rank);
  std::string x = op.tensor(0);
  for (std::size_t d = 0; d < rank; ++d) {
    if (pads[d] == 0 && pads[rank + d] == 0) continue;
    if (pads[d] < 0 || pads[rank + d] < 0) op.reject("circular padding by a negative amount");
    const auto axis = static_cast<std::int64_t>(d);
    const std::int64_t size = op.fixed(op.sizes(0)[d], "a padded dimension");
    Names parts;
    if (pads[d] > 0) parts.push_back(op.slice(x, axis, size - pads[d], size));
    parts.push_back(x);
    if (pads[rank + d] > 0) parts.push_back(op.slice(x, axis, 0, pads[rank + d]));
    x = op.add("Concat", parts, {{"axis", axis}});
  }
  return x;
}

std::string pad_value(RecordedOperation& op, std::size_t i) {
  return op.has(i) ? op.tensor_as(i, op.result_type()) : op.graph().scalar(0, op.result_type());
}

void lower_constant_pad(RecordedOperation& op, const Operator&) {
  op.bind(padded(op, "constant", pad_value(op, 2)));
}

void lower_pad_like(RecordedOperation& op, const Operator& entry) {
  op.bind(padded(op, entry.onnx, ""));
}

void lower_circular_pad(RecordedOperation& op, const Operator&) { op.bind(wrapped(op)); }

// pad(x, pad, mode, value)
void lower_pad(RecordedOperation& op, const Operator&) {
  const std::string mode = op.has(2) ? op.text(2) : "constant";
  if (mode == "circular") return op.bind(wrapped(op));
  if (mode == "constant") return op.bind(padded(op, "constant", pad_value(op, 3)));
  op.bind(padded(op, mode == "replicate" ? "edge" : "reflect", ""));
}

constexpr Operator kPadding[] = {
    {"_pad_circular", lower_circular_pad},
    {"constant_pad_nd", lower_constant_pad},
    {"pad", lower_pad},
    {"reflection_pad1d", lower_pad_like, "reflect"},
    {"reflection_pad2d", lower_pad_like, "reflect"},
    {"reflection_pad3d", lower_pad_like, "reflect"},
    {"replication_pad1d", lower_pad_like, "edge"},
    {"replication_pad2d", lower_pad_like, "edge"},
    {"replication_pad3d", lower_pad_like, "edge"},
};

}  // namespace

Family padding_operators() { return kPadding; }

}  // namespace lockstep::onnx
