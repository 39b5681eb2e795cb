#include <lockstep/parallel/zero/shard.h>

#include <algorithm>
#include <array>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/reduce.h>

namespace lockstep::parallel {
namespace {

// The bytes of each tensor processed in one pass: the buffer stays in the level-2 cache while the
// others stream by, and the calls of LibTorch's kernels, about 10 us each, are small compared to
// the work. Measured from 32 KiB to 1 MiB: half this size costs a tenth more, twice this size gains
// nothing.
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

// Sets `destination` to the mean of all ranks' gradients in `range`, in rank order, with the
// arithmetic of all_reduce on shared memory. LibTorch's threads share the work through a
// TensorIterator, which starts them inside LibTorch: at::parallel_for() is a template that is
// serial in files compiled without OpenMP, such as this one. A contiguous destination is one row.
// Complex numbers are averaged as their real and imaginary parts.
void mean(const Shard& shard, ElementRange range, const torch::Tensor& destination) {
  if (destination.is_complex()) {
    return mean(shard, {2 * range.begin, 2 * range.end}, at::view_as_real(destination).flatten());
  }
  const auto type = comm::data_type_of(destination.scalar_type());
  const auto element = static_cast<std::int64_t>(destination.element_size());
  const auto* const first = static_cast<const std::byte*>(destination.const_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(destination);
  iterator.for_each(
      [&](char** data, const std::int64_t* /*strides*/, std::int64_t size, std::int64_t /*rows*/) {
        auto* const part = reinterpret_cast<std::byte*>(data[0]);
        const std::int64_t offset = range.begin * element + (part - first);
        std::vector<const std::byte*> sources;
        for (const torch::Tensor& peer : shard.peer_gradients) {
          sources.push_back(static_cast<const std::byte*>(peer.const_data_ptr()) + offset);
        }
        comm::reduce(sources, std::array{part}, static_cast<std::size_t>(size), type,
                     ReduceOp::kAverage);
      },
      /*grain_size=*/kPieceBytes / element);
}

// `range` is a part of the run. `step` is the number of the step, or a DeviceStep.
template <class Step>
void update(const detail::GroupRules& rules, const Shard& shard, const SliceRun& run,
            ElementRange range, const torch::Tensor& gradient, const Step& step) {
  std::vector<Tensors> states;
  for (const torch::Tensor& state : shard.states) states.push_back({narrowed(state, range)});
  rules[run.group].update({narrowed(shard.parameters, range)}, {gradient}, states, step);
}

}  // namespace

void update_shard(const detail::GroupRules& rules, const Shard& shard,
                  const std::vector<SliceRun>& runs) {
  for (const SliceRun& run : runs) {
    update(rules, shard, run, run.elements, narrowed(shard.gradients, run.elements), run.steps + 1);
  }
}

void update_shard_on_device(const detail::GroupRules& rules, const Shard& shard,
                            const std::vector<SliceRun>& runs,
                            const std::function<detail::DeviceStep(const SliceRun&)>& step_of) {
  for (const SliceRun& run : runs) {
    update(rules, shard, run, run.elements, narrowed(shard.gradients, run.elements), step_of(run));
  }
}

void reduce_shard(const Shard& shard, const std::vector<SliceRun>& runs) {
  for (const auto& run : runs) mean(shard, run.elements, narrowed(shard.gradients, run.elements));
}

void reduce_and_update_shard(const detail::GroupRules& rules, const Shard& shard,
                             const std::vector<SliceRun>& runs) {
  const auto element = static_cast<std::int64_t>(shard.gradients.element_size());
  const std::int64_t most = kPieceBytes / element * at::get_num_threads();
  const torch::Tensor buffer = torch::empty({most}, shard.gradients.options());
  for (const SliceRun& run : runs) {
    const std::int64_t all = run.elements.end;
    for (std::int64_t begin = run.elements.begin; begin < all; begin += most) {
      const ElementRange piece{begin, std::min(all, begin + most)};
      const torch::Tensor gradient = buffer.narrow(0, 0, piece.size());
      mean(shard, piece, gradient);
      update(rules, shard, run, piece, gradient, run.steps + 1);
    }
  }
}

}  // namespace lockstep::parallel
