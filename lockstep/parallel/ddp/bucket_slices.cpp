#include <lockstep/parallel/ddp/bucket_slices.h>

#include <algorithm>

namespace lockstep::parallel {

ElementRange slice_of(const GradBucket& bucket, int rank, int size) {
  const std::int64_t each = bucket.buffer.numel() / size;
  return {rank * each, (rank + 1) * each};
}

torch::Tensor narrowed(const torch::Tensor& flat, ElementRange range) {
  return flat.narrow(0, range.begin, range.size());
}

std::int64_t offset_of(const GradBucket& bucket, std::size_t i) {
  return bucket.gradients[i].storage_offset() - bucket.buffer.storage_offset();
}

const void* place_of(const GradBucket& bucket, std::size_t i) {
  const auto element = static_cast<std::int64_t>(bucket.flat_parameters.element_size());
  return static_cast<const std::byte*>(bucket.flat_parameters.const_data_ptr()) +
         offset_of(bucket, i) * element;
}

std::vector<SliceRun> runs_with_gradients(const GradBucket& bucket, ElementRange slice,
                                          const std::vector<std::int64_t>& steps,
                                          const std::vector<std::size_t>& groups,
                                          bool with_padding) {
  std::vector<SliceRun> runs;
  const std::size_t count = bucket.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!bucket.parameters[i].grad().defined()) continue;
    const std::int64_t offset = offset_of(bucket, i);
    const std::int64_t next = i + 1 < count ? offset_of(bucket, i + 1) : bucket.buffer.numel();
    const std::int64_t last = with_padding ? next : offset + bucket.gradients[i].numel();
    const std::int64_t begin = std::max(offset, slice.begin) - slice.begin;
    const std::int64_t end = std::min(last, slice.end) - slice.begin;
    if (begin >= end) continue;
    if (!runs.empty() && runs.back().elements.end == begin && runs.back().steps == steps[i] &&
        runs.back().group == groups[i]) {
      runs.back().elements.end = end;
    } else {
      runs.push_back({.elements = {begin, end}, .steps = steps[i], .group = groups[i]});
    }
  }
  return runs;
}

}  // namespace lockstep::parallel
