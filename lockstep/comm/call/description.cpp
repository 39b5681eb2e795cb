#include <lockstep/comm/call/description.h>

#include <algorithm>
#include <sstream>

#include <lockstep/comm/call/message_tag.h>

namespace lockstep {
namespace {

bool reduces(CallKind kind) {
  return kind == CallKind::kReduce || kind == CallKind::kAllReduce ||
         kind == CallKind::kReduceScatter;
}

bool has_root(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kReduce || kind == CallKind::kGather ||
         kind == CallKind::kScatter;
}

void append_shape(std::ostringstream& out, const CallDescription& call) {
  if (call.kind == CallKind::kAllToAll && call.root == CallDescription::kWithSplits) {
    out << "with splits";
    return;
  }
  if (call.shape.dimensions < 2) {
    out << call.count;
    return;
  }
  const std::size_t places = std::min<std::size_t>(call.shape.dimensions, Shape::kPlaces);
  for (std::size_t i = 0; i < places; ++i) out << (i == 0 ? "" : "x") << call.shape.sizes[i];
  if (call.shape.dimensions > places) out << "x...";
  if (call.shape.channels_last) out << " channels_last";
}

}  // namespace

const char* call_name(CallKind kind) {
  switch (kind) {
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kGather:
      return "gather";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kSend:
      return "send";
    case CallKind::kRecv:
      return "recv";
  }
  return "?";
}

std::string describe(const CallDescription& call) {
  if (call.kind == CallKind::kBarrier) return "barrier";
  std::ostringstream out;
  out << call_name(call.kind) << '[' << detail::data_type_name(call.type) << ", ";
  append_shape(out, call);
  if (reduces(call.kind) && call.op.kind != ReduceOp::Kind::kSum) {
    out << ", " << reduce_op_name(call.op.kind);
    if (call.op.kind == ReduceOp::Kind::kPreMultipliedSum) out << " by " << call.op.factor;
  }
  if (call.algorithm != Algorithm::kNative) out << ", by " << algorithm_name(call.algorithm);
  if (has_root(call.kind)) out << ", root " << call.root;
  if (call.kind == CallKind::kSend) out << ", to rank " << call.root;
  if (call.kind == CallKind::kRecv) {
    out << ", from ";
    if (call.root < 0) {
      out << "any rank";
    } else {
      out << "rank " << call.root;
    }
  }
  out << ']';
  return out.str();
}

std::uint32_t comm::fingerprint(const std::string& text) {
  std::uint32_t hash = 2166136261U;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
  return hash;
}

}  // namespace lockstep
