#include <lockstep/parallel/ddp/module_buffers.h>

#include <map>
#include <set>

#include <lockstep/core/error.h>
#include <lockstep/optim/tensor_kind.h>

namespace lockstep::detail {

ModuleBuffers::ModuleBuffers(const torch::nn::Module& module, ProcessGroup group)
    : group_(std::move(group)) {
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, Block> by_type;
  std::set<const torch::TensorImpl*> seen;  // a module registered twice lists its buffers twice
  for (const auto& item : module.named_buffers()) {
    const torch::Tensor& buffer = item.value();
    if (!seen.insert(buffer.unsafeGetTensorImpl()).second || buffer.numel() == 0) continue;
    Block& block = by_type[buffer.scalar_type()];
    block.names.push_back(item.key());
    block.buffers.push_back(buffer);
  }
  for (auto& [dtype, block] : by_type) {
    std::int64_t count = 0;
    for (const auto& buffer : block.buffers) count += buffer.numel();
    block.flat = group_.allocate({count}, dtype);
    std::int64_t offset = 0;
    for (const auto& buffer : block.buffers) {
      block.views.push_back(block.flat.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
      offset += buffer.numel();
    }
    move_into_block(block);
    blocks_.push_back(std::move(block));
  }
}

void ModuleBuffers::move_into_block(Block& block) {
  for (std::size_t i = 0; i < block.buffers.size(); ++i) {
    const torch::Tensor &buffer = block.buffers[i], &view = block.views[i];
    if (!optim::alike(buffer, view)) {
      const ConfigError error(lockstep::str(
          "rank ", group_.rank(), ": buffer '", block.names[i], "' was ", optim::kind_text(view),
          " when DistributedDataParallel was constructed and is now ", optim::kind_text(buffer),
          "; construct it after changing the module"));
      group_.abort(error.what());
      throw error;
    }
    if (buffer.data_ptr() == view.data_ptr()) continue;
    block.views[i].copy_(block.buffers[i]);
    block.buffers[i].set_data(block.views[i]);
  }
}

void ModuleBuffers::broadcast(int source) {
  const torch::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Work>> works;
  for (Block& block : blocks_) {
    move_into_block(block);
    works.push_back(group_.async_broadcast(block.flat, source));
    if (group_.rank() == source) continue;
    // The buffers have versions of their own, by which autograd notices that saved values changed.
    for (const torch::Tensor& buffer : block.buffers) {
      if (!buffer.is_inference()) buffer.unsafeGetTensorImpl()->bump_version();
    }
  }
  for (const auto& work : works) work->wait();
}

}  // namespace lockstep::detail
