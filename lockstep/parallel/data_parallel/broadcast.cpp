#include <lockstep/parallel/data_parallel/broadcast.h>

#include <map>
#include <utility>

#include <ATen/ops/_foreach_copy.h>

namespace lockstep::detail::data_parallel {
namespace {

bool same_layout(const torch::Tensor& view, const torch::Tensor& original) {
  return view.scalar_type() == original.scalar_type() && view.sizes() == original.sizes() &&
         (!original.is_non_overlapping_and_dense() || view.strides() == original.strides());
}

// Parts of `flat` with the shapes of `originals`, and with their strides if these have no holes.
std::vector<torch::Tensor> parts_of_flat(const torch::Tensor& flat,
                                         const std::vector<torch::Tensor>& originals) {
  std::vector<torch::Tensor> parts;
  std::int64_t offset = 0;
  for (const torch::Tensor& original : originals) {
    parts.push_back(original.is_non_overlapping_and_dense()
                        ? flat.as_strided(original.sizes(), original.strides(), offset)
                        : flat.narrow(0, offset, original.numel()).view(original.sizes()));
    offset += original.numel();
  }
  return parts;
}

std::vector<torch::Tensor> picked(const std::vector<torch::Tensor>& tensors,
                                  const std::vector<std::size_t>& members) {
  std::vector<torch::Tensor> result;
  for (const std::size_t i : members) result.push_back(tensors[i]);
  return result;
}

}  // namespace

bool Broadcast::fits(const std::vector<torch::Tensor>& originals) const {
  if (blocks_.empty()) return false;
  for (const Block& block : blocks_) {
    for (std::size_t i = 0; i < block.members.size(); ++i) {
      if (!same_layout(block.views.front()[i], originals[block.members[i]])) return false;
    }
  }
  return true;
}

void Broadcast::make_blocks(const std::vector<torch::Tensor>& originals) {
  std::map<torch::ScalarType, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < originals.size(); ++i) {
    by_type[originals[i].scalar_type()].push_back(i);
  }
  blocks_.clear();
  for (auto& [dtype, members] : by_type) {
    Block block;
    block.members = std::move(members);
    const auto mine = picked(originals, block.members);
    std::int64_t numel = 0;
    for (const torch::Tensor& original : mine) numel += original.numel();
    const torch::TensorOptions options = mine.front().options();
    for (const Target& target : targets_) {
      block.flats.push_back(torch::empty({numel}, options.device(target.device)));
      block.views.push_back(parts_of_flat(block.flats.back(), mine));
      for (std::size_t i = 0; i < mine.size(); ++i) {
        target.tensors[block.members[i]].set_data(block.views.back()[i]);
      }
      if (target.device != mine.front().device() && !block.staging.defined()) {
        block.staging = torch::empty({numel}, options);
        block.staged = parts_of_flat(block.staging, mine);
      }
    }
    blocks_.push_back(std::move(block));
  }
}

void Broadcast::send(const std::vector<torch::Tensor>& originals) {
  if (targets_.empty() || originals.empty()) return;
  if (!fits(originals)) make_blocks(originals);
  for (const Block& block : blocks_) {
    const auto mine = picked(originals, block.members);
    if (block.staging.defined()) at::_foreach_copy_(block.staged, mine);
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      if (block.staging.defined()) {
        block.flats[i].copy_(block.staging, /*non_blocking=*/true);
      } else {
        at::_foreach_copy_(block.views[i], mine);
      }
    }
  }
}

}  // namespace lockstep::detail::data_parallel
