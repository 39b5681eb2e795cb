#include <lockstep/parallel/distributed_data_parallel.h>

#include <numeric>
#include <set>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/agreement.h>

namespace lockstep {
namespace {

// Tied weights have several names and one gradient.
std::vector<NamedParameter> trainable_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  std::set<const torch::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      parameters.push_back({item.key(), item.value()});
    }
  }
  return parameters;
}

void broadcast_state(const torch::nn::Module& module, ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Work>> works;
  std::vector<torch::Tensor> tensors = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (const torch::Tensor& tensor : tensors) {
    works.push_back(group.async_broadcast(tensor.detach(), 0));
  }
  for (const auto& work : works) work->wait();
}

std::size_t mebibytes(double value) { return static_cast<std::size_t>(value * (1 << 20)); }

}  // namespace

DdpCore::DdpCore(torch::nn::Module& module, ProcessGroup group, const DdpOptions& options)
    : group_(std::move(group)) {
  const OptionCheck check("DistributedDataParallel");
  check.positive("bucket_cap_mb", options.bucket_cap_mb);
  check.positive("first_bucket_cap_mb", options.first_bucket_cap_mb);
  auto parameters = trainable_parameters(module);
  if (parameters.empty()) {
    throw ConfigError("DistributedDataParallel: the module has no parameter that requires a gradient");
  }
  if (group_.size() == 1) return;
  verify_agreement(module, group_);
  broadcast_state(module, group_);
  if (options.broadcast_buffers) {
    buffers_.emplace(module, group_);
    if (buffers_->empty()) buffers_.reset();
  }
  if (options.sync_batch_norm) {
    // Or its few numbers would wait behind whole buckets.
    std::vector<int> all(static_cast<std::size_t>(group_.size()));
    std::iota(all.begin(), all.end(), 0);
    sync_batch_norm_ = convert_sync_batchnorm(module, *group_.new_group(all));
  }
  reducer_.emplace(std::move(parameters), group_,
                   BucketCaps{mebibytes(options.first_bucket_cap_mb), mebibytes(options.bucket_cap_mb)});
}

void DdpCore::before_forward() {
  if (!reducer_) return;
  reducer_->require_idle();
  if (buffers_ && reducer_->synchronizes()) buffers_->broadcast();
}

double DdpCore::communication_seconds() const {
  return reducer_ ? reducer_->statistics().exposed_seconds : 0;
}

bool DdpCore::synchronize(bool on) {
  if (!reducer_) return on;
  const bool before = reducer_->synchronizes();
  reducer_->set_synchronize(on);
  return before;
}

}  // namespace lockstep
