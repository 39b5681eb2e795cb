#include <lockstep/parallel/module_buffers.h>

#include <map>
#include <set>

#include <lockstep/core/error.h>

namespace lockstep {

ModuleBuffers::ModuleBuffers(const torch::nn::Module& module, ProcessGroup group)
    : group_(std::move(group)) {
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> by_type;
  std::set<const torch::TensorImpl*> seen;  // a module that is used twice has its buffers twice
  for (const torch::Tensor& buffer : module.buffers()) {
    if (!seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
    if (buffer.numel() > 0) by_type[buffer.scalar_type()].push_back(buffer);
  }
  for (auto& [dtype, buffers] : by_type) {
    std::int64_t count = 0;
    for (const auto& buffer : buffers) count += buffer.numel();
    Block block{group_.allocate({count}, dtype), std::move(buffers), {}};
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
    if (block.buffers[i].data_ptr() == block.views[i].data_ptr()) continue;
    if (block.buffers[i].scalar_type() != block.flat.scalar_type() ||
        block.buffers[i].device() != block.flat.device()) {
      throw ConfigError(lockstep::str("a buffer of the module became ", block.buffers[i].scalar_type(),
                                      " on ", block.buffers[i].device(),
                                      " after DistributedDataParallel was made; convert the module first"));
    }
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
  }
  for (const auto& work : works) work->wait();
}

}  // namespace lockstep
