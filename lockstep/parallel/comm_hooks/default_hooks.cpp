#include <lockstep/parallel/comm_hooks/default_hooks.h>

#include <array>
#include <map>
#include <utility>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/ddp/phased_work.h>

namespace lockstep {
namespace {

using torch::Tensor;

// A hook's state for each bucket. If a rebuild leaves fewer buckets, the state of the others is
// dropped.
template <class Value>
class OfBuckets {
 public:
  Value& operator[](const GradBucket& bucket) {
    if (std::exchange(layout_, bucket.layout) != bucket.layout) values_.clear();
    return values_[bucket.index];
  }

 private:
  std::uint64_t layout_ = 0;
  std::map<std::size_t, Value> values_;
};

// `pieces` has one piece of each rank, in rank order, on the CPU. The mean is written to the first.
void average_pieces(const Tensor& pieces, int count) {
  const std::int64_t length = pieces.numel() / count;
  auto* data = static_cast<std::byte*>(pieces.data_ptr());
  std::vector<const std::byte*> sources;
  for (int i = 0; i < count; ++i) {
    sources.push_back(data + static_cast<std::size_t>(i * length) * pieces.element_size());
  }
  const std::array<std::byte*, 1> destinations{data};
  comm::reduce(sources, destinations, static_cast<std::size_t>(length),
               comm::data_type_of(pieces.scalar_type()), ReduceOp::kAverage);
}

// Averages 16-bit values. The group's all_reduce over Gloo sends them as float32. To send only 16
// bits, each rank receives its share of all ranks' values, averages it and sends it to all.
class MeanOf16Bits {
 public:
  explicit MeanOf16Bits(ProcessGroup group) : group_(std::move(group)) {}

  std::shared_ptr<Work> operator()(GradBucket& bucket) {
    const Tensor& buffer = bucket.buffer;
    const int size = group_.size();
    if (!group_.traits().widens_halves || !buffer.is_cpu() || buffer.numel() % size != 0) {
      return group_.async_all_reduce(buffer, ReduceOp::kAverage);
    }
    Tensor& received = received_[bucket];
    if (!received.defined() || received.numel() != buffer.numel())
      received = torch::empty_like(buffer);
    auto average_and_send = [group = group_, received, buffer, size]() mutable {
      average_pieces(received, size);
      return group.async_all_gather_into_tensor(buffer,
                                                received.narrow(0, 0, buffer.numel() / size));
    };
    return std::make_shared<PhasedWork>(
        group_.async_all_to_all_single(received, buffer),
        std::vector<PhasedWork::Phase>{std::move(average_and_send)});
  }

 private:
  ProcessGroup group_;
  OfBuckets<Tensor> received_;
};

class CompressedHook {
 public:
  CompressedHook(ProcessGroup group, torch::ScalarType type, CommHook hook)
      : group_(std::move(group)), type_(type), hook_(std::move(hook)) {}

  std::shared_ptr<Work> operator()(GradBucket& given) {
    const torch::NoGradGuard no_grad;
    GradBucket& bucket = given.buffer.is_complex() ? real_view(given) : given;
    if (bucket.buffer.scalar_type() == type_) return hook_(bucket);
    GradBucket& compressed = compressed_[bucket];
    if (!fits(compressed, bucket)) compressed = make_compressed(bucket);
    compressed.is_last = bucket.is_last;
    compressed.buffer.copy_(bucket.buffer);
    std::shared_ptr<Work> reduction = hook_(compressed);
    // PhasedWork would take null for completed.
    if (!reduction) {
      throw ConfigError("a communication hook returned no Work; return a completed one instead");
    }
    auto decompress = [from = compressed.buffer, to = bucket.buffer]() -> std::shared_ptr<Work> {
      const torch::NoGradGuard decompress_no_grad;
      to.copy_(from);
      return nullptr;
    };
    return std::make_shared<PhasedWork>(std::move(reduction),
                                        std::vector<PhasedWork::Phase>{std::move(decompress)});
  }

 private:
  static bool fits(const GradBucket& compressed, const GradBucket& bucket) {
    return compressed.buffer.defined() && compressed.buffer.numel() == bucket.buffer.numel();
  }

  // Complex gradients are sent as their real and imaginary parts.
  GradBucket& real_view(const GradBucket& bucket) {
    GradBucket& view = real_views_[bucket];
    if (!view.buffer.defined() || view.buffer.data_ptr() != bucket.buffer.data_ptr()) {
      view = bucket;
      view.buffer = at::view_as_real(bucket.buffer).flatten();
      for (Tensor& gradient : view.gradients) gradient = at::view_as_real(gradient);
    }
    view.is_last = bucket.is_last;
    return view;
  }

  GradBucket make_compressed(const GradBucket& bucket) {
    GradBucket compressed = bucket;
    compressed.buffer = group_.allocate({bucket.buffer.numel()}, type_);
    for (Tensor& gradient : compressed.gradients) {
      const std::int64_t offset = gradient.storage_offset() - bucket.buffer.storage_offset();
      gradient = compressed.buffer.as_strided(gradient.sizes(), gradient.strides(), offset);
    }
    return compressed;
  }

  ProcessGroup group_;
  torch::ScalarType type_;
  CommHook hook_;
  OfBuckets<GradBucket> compressed_;
  OfBuckets<GradBucket> real_views_;
};

// A CommHook may be copied, but its state must be shared.
template <class Hook>
CommHook shared(Hook hook) {
  return [state = std::make_shared<Hook>(std::move(hook))](GradBucket& bucket) {
    return (*state)(bucket);
  };
}

CommHook compress_wrapper(ProcessGroup group, torch::ScalarType type, CommHook hook) {
  return shared(CompressedHook(std::move(group), type, std::move(hook)));
}

}  // namespace

CommHook all_reduce_hook(ProcessGroup group) {
  return [group = std::move(group)](GradBucket& bucket) mutable {
    return group.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
  };
}

CommHook noop_hook() {
  return [](GradBucket&) {
    return std::make_shared<PhasedWork>(nullptr, std::vector<PhasedWork::Phase>{});
  };
}

CommHook fp16_compress_hook(ProcessGroup group) {
  return fp16_compress_wrapper(group, shared(MeanOf16Bits(group)));
}

CommHook bf16_compress_hook(ProcessGroup group) {
  return bf16_compress_wrapper(group, shared(MeanOf16Bits(group)));
}

CommHook fp16_compress_wrapper(ProcessGroup group, CommHook hook) {
  return compress_wrapper(std::move(group), torch::kFloat16, std::move(hook));
}

CommHook bf16_compress_wrapper(ProcessGroup group, CommHook hook) {
  return compress_wrapper(std::move(group), torch::kBFloat16, std::move(hook));
}

}  // namespace lockstep
