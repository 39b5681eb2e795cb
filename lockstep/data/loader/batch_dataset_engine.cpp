// The engine for batches of user-defined data sets. On the way to a GPU, batches pass through
// pinned memory as a whole.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/loader_engine.h>
#include <lockstep/data/loader/ring_engine.h>
#include <lockstep/data/loader/tensor_memory.h>

namespace lockstep::detail {
namespace {

// Moves tensors of a buffer to pinned memory that belongs to the buffer. Tensors that are already
// in pinned memory or on a GPU stay where they are.
class PinnedMemory {
 public:
  void pin(std::vector<torch::Tensor>& tensors) {
    memory_.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      torch::Tensor& tensor = tensors[i];
      if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != torch::kStrided ||
          tensor.is_pinned())
        continue;
      tensor = data::copy_reusing(memory_[i], tensor, tensor.options().pinned_memory(true));
    }
  }

 private:
  std::vector<torch::Tensor> memory_;
};

}  // namespace

std::unique_ptr<LoaderEngine> make_batch_dataset_engine(MakeBatch make_batch,
                                                        const LoaderOptions& options) {
  auto fill = [make_batch = std::move(make_batch), pinned = options.device.is_cuda(),
               memory = std::vector<PinnedMemory>(static_cast<std::size_t>(data::RingEngine::slots(
                   options)))](int slot, const BatchRequest& request, LoadedBatch& buffer) mutable {
    make_batch(request, buffer);
    if (pinned) memory[static_cast<std::size_t>(slot)].pin(buffer.tensors);
  };
  return data::on_device(std::make_unique<data::RingEngine>(options, std::move(fill)), options);
}

}  // namespace lockstep::detail
