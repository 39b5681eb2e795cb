// Borders around a tensor.
#include <algorithm>
#include <limits>
#include <map>

#include <ATen/PadNd.h>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

constexpr std::int64_t kUpToTheEnd = std::numeric_limits<std::int64_t>::max();

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

// Cuts what a negative padding takes away from either end.
std::string cropped(RecordedOperation& op, std::string x, const std::vector<std::int64_t>& pads) {
  const std::size_t rank = pads.size() / 2;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t begin = std::max<std::int64_t>(-pads[d], 0);
    const std::int64_t end = pads[rank + d] < 0 ? pads[rank + d] : kUpToTheEnd;
    if (begin != 0 || end != kUpToTheEnd) x = op.slice(x, static_cast<std::int64_t>(d), begin, end);
  }
  return x;
}

std::vector<std::int64_t> without_crops(std::vector<std::int64_t> pads) {
  for (std::int64_t& each : pads) each = std::max<std::int64_t>(each, 0);
  return pads;
}

// A border may repeat elements that a negative padding of the other end takes away.
std::string padded(RecordedOperation& op, const char* mode, const std::string& value) {
  const auto pads = onnx_pads(op.integers(1), op.sizes(0).size());
  const std::string borders = op.graph().integers(without_crops(pads));
  return cropped(op, op.add("Pad", {op.tensor(0), borders, value}, {{"mode", mode}}), pads);
}

// Circular padding: the end of each dimension before it, and its beginning after it. A negative
// padding is taken away first.
std::string wrapped(RecordedOperation& op) {
  const std::size_t rank = op.sizes(0).size();
  const auto given = onnx_pads(op.integers(1), rank);
  const auto pads = without_crops(given);
  std::string x = cropped(op, op.tensor(0), given);
  for (std::size_t d = 0; d < rank; ++d) {
    if (pads[d] == 0 && pads[rank + d] == 0) continue;
    const auto axis = static_cast<std::int64_t>(d);
    Names parts;
    if (pads[d] > 0) parts.push_back(op.slice(x, axis, -pads[d], kUpToTheEnd));
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

std::string padded_in(RecordedOperation& op, at::padding_mode mode) {
  switch (mode) {
    case at::padding_mode::circular:
      return wrapped(op);
    case at::padding_mode::reflect:
      return padded(op, "reflect", "");
    case at::padding_mode::replicate:
      return padded(op, "edge", "");
    case at::padding_mode::constant:
      break;
  }
  return padded(op, "constant", pad_value(op, 3));
}

// _pad_enum(x, pad, mode, value): C++'s functional pad(), padding modules and convolutions with a
// padding mode are recorded as this one.
void lower_pad_enum(RecordedOperation& op, const Operator&) {
  op.bind(padded_in(op, static_cast<at::padding_mode>(op.integer(2))));
}

// pad(x, pad, mode, value)
void lower_pad(RecordedOperation& op, const Operator&) {
  static const std::map<std::string, at::padding_mode> kModes = {
      {"circular", at::padding_mode::circular},
      {"constant", at::padding_mode::constant},
      {"reflect", at::padding_mode::reflect},
      {"replicate", at::padding_mode::replicate}};
  op.bind(padded_in(op, kModes.at(op.has(2) ? op.text(2) : "constant")));
}

constexpr Operator kPadding[] = {
    {"_pad_circular", lower_circular_pad},
    {"_pad_enum", lower_pad_enum},
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
