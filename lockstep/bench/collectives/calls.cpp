#include <lockstep/bench/collectives/calls.h>

#include <algorithm>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/core/error.h>

namespace lockstep::bench {
namespace {

constexpr int kRoot = 0;
constexpr int kReceiver = 1;  // in send_recv

int value_of(int rank, int call) { return (rank + call) % 2; }

}  // namespace

torch::ScalarType scalar_type_of(detail::DataType type) {
  for (const auto each :
       {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
        torch::kInt16, torch::kInt32, torch::kInt64, torch::kUInt8, torch::kBool}) {
    if (comm::data_type_of(each) == type) return each;
  }
  LOCKSTEP_CHECK(false, "LibTorch has no type ", detail::data_type_name(type));
}

BenchCall::BenchCall(ProcessGroup group, const BenchCase& which)
    : group_(std::move(group)),
      collective_(which.collective),
      algorithm_(which.algorithm),
      dtype_(which.dtype) {
  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype_));
  const std::int64_t parts = is_divided(collective_) ? group_.size() : 1;
  elements_ = std::max<std::int64_t>(which.bytes / element / parts, 1) * parts;
  if (collective_ == CallKind::kBarrier) elements_ = 0;
  make_buffers(which.symmetric);
  run_ = make_call(which.algorithm);
}

torch::Tensor BenchCall::make(std::int64_t elements, bool symmetric) {
  return symmetric ? group_.allocate({elements}, dtype_) : torch::zeros({elements}, dtype_);
}

// Symmetric memory is allocated by all ranks, whether they need it or not.
void BenchCall::make_buffers(bool symmetric) {
  const bool root = group_.rank() == kRoot;
  const std::int64_t part = elements_ / group_.size();
  switch (collective_) {
    case CallKind::kBarrier:
      break;
    case CallKind::kAllReduce:
    case CallKind::kReduce:
      given_ = result_ = make(elements_, symmetric);
      break;
    case CallKind::kBroadcast:
    case CallKind::kSend:
    case CallKind::kRecv:
      given_ = result_ = make(elements_, symmetric);
      break;
    case CallKind::kAllGather:
      given_ = make(part, symmetric);
      result_ = make(elements_, symmetric);
      break;
    case CallKind::kGather:
      given_ = make(part, symmetric);
      if (root || symmetric) result_ = make(elements_, symmetric);
      break;
    case CallKind::kScatter:
      if (root || symmetric) given_ = make(elements_, symmetric);
      result_ = make(part, symmetric);
      break;
    case CallKind::kReduceScatter:
      given_ = make(elements_, symmetric);
      result_ = make(part, symmetric);
      break;
    case CallKind::kAllToAll:
      given_ = make(elements_, symmetric);
      result_ = make(elements_, symmetric);
  }
}

std::function<void()> BenchCall::make_call(Algorithm algorithm) {
  const bool root = group_.rank() == kRoot;
  const auto pieces = [&](const torch::Tensor& whole) -> Tensors {
    return root ? whole.chunk(group_.size()) : Tensors{};
  };
  switch (collective_) {
    case CallKind::kBarrier:
      return [this] { group_.barrier(); };
    case CallKind::kAllReduce:
      return [this, algorithm] { group_.all_reduce(given_, ReduceOp::kSum, algorithm); };
    case CallKind::kReduce:
      return [this] { group_.reduce(given_, kRoot); };
    case CallKind::kBroadcast:
      return [this] { group_.broadcast(given_, kRoot); };
    case CallKind::kSend:
    case CallKind::kRecv:
      if (root) return [this] { group_.send(given_, kReceiver); };
      if (group_.rank() == kReceiver) return [this] { group_.recv(result_, kRoot); };
      return [] {};
    case CallKind::kAllGather:
      return [this] { group_.all_gather_into_tensor(result_, given_); };
    case CallKind::kGather:
      return [this, outputs = pieces(result_)] { group_.gather(given_, outputs, kRoot); };
    case CallKind::kScatter:
      return [this, inputs = pieces(given_)] { group_.scatter(result_, inputs, kRoot); };
    case CallKind::kReduceScatter:
      return [this] { group_.reduce_scatter_tensor(result_, given_); };
    case CallKind::kAllToAll:
      return [this] { group_.all_to_all_single(result_, given_); };
  }
  LOCKSTEP_CHECK(false, "unknown collective");
}

WorkPtr BenchCall::start() {
  switch (collective_) {
    case CallKind::kAllReduce:
      return group_.async_all_reduce(given_, ReduceOp::kSum, algorithm_);
    case CallKind::kReduceScatter:
      return group_.async_reduce_scatter_tensor(result_, given_);
    case CallKind::kAllGather:
      return group_.async_all_gather_into_tensor(result_, given_);
    default:
      return nullptr;
  }
}

void BenchCall::write(int call) {
  if (given_.defined()) given_.fill_(value_of(group_.rank(), call));
}

// Returns -1 if there is nothing that this rank could check.
int BenchCall::expected(int call) const {
  const int rank = group_.rank(), last = group_.size() - 1;
  switch (collective_) {
    case CallKind::kBarrier:
      return -1;
    case CallKind::kReduce:
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter: {
      if (collective_ == CallKind::kReduce && rank != kRoot) return -1;
      int sum = 0;
      for (int r = 0; r < group_.size(); ++r) sum += value_of(r, call);
      return dtype_ == torch::kBool ? std::min(sum, 1) : sum;
    }
    case CallKind::kBroadcast:
    case CallKind::kScatter:
      return value_of(kRoot, call);
    case CallKind::kSend:
    case CallKind::kRecv:
      return rank == kReceiver ? value_of(kRoot, call) : -1;
    case CallKind::kGather:
      return rank == kRoot ? value_of(last, call) : -1;
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
      return value_of(last, call);
  }
  return -1;
}

void BenchCall::check(int call) const {
  const int want = expected(call);
  if (want < 0) return;
  const auto got = result_[-1].item<double>();
  LOCKSTEP_CHECK(got == want, "rank ", group_.rank(), ": ", bench_call_name(collective_), " of ",
                 bytes(), " bytes gave ", got, ", expected ", want);
}

double BenchCall::memory_needed(const BenchCase& which, int ranks) {
  const bool stages = which.algorithm != Algorithm::kNative;
  return static_cast<double>(which.bytes) * ranks * (stages ? 3 : 2);
}

}  // namespace lockstep::bench
