#include <lockstep/train/checkpoints/tensor_snapshot.h>

#include <ATen/TensorIterator.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::train {
namespace {

// A cache line: no two threads write to one, and every type is aligned.
constexpr std::int64_t kSnapshotAlignment = 64;
// Minimum number of bytes per thread: less is not worth starting one.
constexpr std::int64_t kSnapshotGrain = std::int64_t{1} << 20;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment;
}

// Bytes to copy to position `begin` of the snapshot's memory.
struct SnapshotPiece {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
  const std::byte* from = nullptr;
};

// Copies the parts of `pieces`, which are sorted, that fall into [begin, end) to the memory at
// `to`.
void copy_range(const std::vector<SnapshotPiece>& pieces, std::byte* to, std::int64_t begin,
                std::int64_t end) {
  auto piece = std::upper_bound(
      pieces.begin(), pieces.end(), begin,
      [](std::int64_t at, const SnapshotPiece& each) { return at < each.begin + each.bytes; });
  for (; piece != pieces.end() && piece->begin < end; ++piece) {
    const std::int64_t first = std::max(begin, piece->begin);
    const std::int64_t last = std::min(end, piece->begin + piece->bytes);
    std::memcpy(to + first, piece->from + (first - piece->begin),
                static_cast<std::size_t>(last - first));
  }
}

// Whether the memory of `tensor` holds its values, in some order and without gaps.
bool is_plain(const torch::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_non_overlapping_and_dense() && !tensor.is_conj() &&
         !tensor.is_neg();
}

// Divides the memory among LibTorch's threads. A TensorIterator starts them inside LibTorch;
// at::parallel_for() would be serial, because this file is compiled without OpenMP.
void copy_pieces(const std::vector<SnapshotPiece>& pieces, const torch::Tensor& memory) {
  if (pieces.empty()) return;
  auto* const to = static_cast<std::byte*>(memory.mutable_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(memory);
  iterator.for_each(
      [&](char** data, const std::int64_t* /*strides*/, std::int64_t size, std::int64_t /*rows*/) {
        const std::int64_t begin = reinterpret_cast<std::byte*>(data[0]) - to;
        copy_range(pieces, to, begin, begin + size);
      },
      kSnapshotGrain);
}

// A tensor in `memory` for a copy of `tensor`, starting at byte `begin`.
torch::Tensor place_for(const torch::Tensor& tensor, const torch::Tensor& memory,
                        std::int64_t begin) {
  const torch::Tensor flat = memory.narrow(0, begin, static_cast<std::int64_t>(tensor.nbytes()))
                                 .view(tensor.scalar_type());
  return tensor.is_non_overlapping_and_dense() ? flat.as_strided(tensor.sizes(), tensor.strides())
                                               : flat.view(tensor.sizes());
}

}  // namespace

std::int64_t TensorSnapshot::bytes_of(const StateDict& state) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : state) {
    bytes += aligned(static_cast<std::int64_t>(tensor.nbytes()));
  }
  return bytes;
}

void TensorSnapshot::reserve(std::int64_t bytes, bool pinned) {
  if (memory_.defined() && memory_.numel() >= bytes && memory_.is_pinned() == pinned) return;
  memory_ = torch::Tensor();  // freed first, so that only one exists at a time
  memory_ = torch::empty({bytes}, torch::dtype(torch::kUInt8).pinned_memory(pinned));
  // Runs in this thread only, which need not be the training thread.
  std::memset(memory_.mutable_data_ptr(), 0, memory_.nbytes());
}

StateDict TensorSnapshot::take(const StateDict& state) {
  const bool has_gpu = std::any_of(state.begin(), state.end(),
                                   [](const auto& entry) { return entry.second.is_cuda(); });
  reserve(bytes_of(state), has_gpu);
  const torch::NoGradGuard no_grad;
  StateDict copies;
  std::vector<SnapshotPiece> pieces;
  std::set<torch::DeviceIndex> gpus;
  std::int64_t begin = 0;
  for (const auto& [name, tensor] : state) {
    const torch::Tensor copy = tensor.numel() == 0 ? torch::empty_like(tensor, torch::kCPU)
                                                   : place_for(tensor, memory_, begin);
    copies.emplace_back(name, copy);
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (bytes == 0) continue;
    if (is_plain(tensor)) {
      pieces.push_back({begin, bytes, static_cast<const std::byte*>(tensor.const_data_ptr())});
    } else {
      // Lazy marks are resolved first: LibTorch would do it to the copy, which has not arrived yet.
      copy.copy_(tensor.resolve_conj().resolve_neg(), /*non_blocking=*/true);
      if (tensor.is_cuda()) gpus.insert(tensor.device().index());
    }
    begin += aligned(bytes);
  }
  copy_pieces(pieces, memory_.narrow(0, 0, begin));
  for (const torch::DeviceIndex gpu : gpus) {
    const torch::Device device(torch::kCUDA, gpu);
    comm::current_stream(device).synchronize();
  }
  return copies;
}

}  // namespace lockstep::train
