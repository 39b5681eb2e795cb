#include <lockstep/parallel/zero/sharded_state.h>

#include <map>
#include <set>

#include <lockstep/core/error.h>
#include <lockstep/parallel/ddp/bucket_slices.h>

namespace lockstep::parallel {
namespace {

std::string step_key(const std::string& name) { return "step." + name; }

std::string type_and_shape(torch::ScalarType type, at::IntArrayRef sizes) {
  return lockstep::str(type, ' ', sizes);
}

}  // namespace

ShardedState::ShardedState(const std::vector<GradBucket>& buckets,
                           const std::vector<detail::NamedParameter>& names,
                           const detail::UpdateRule& rule, ProcessGroup group)
    : state_names_(rule.state_names()),
      counts_steps_(rule.counts_steps()),
      group_(std::move(group)) {
  std::map<const torch::TensorImpl*, const std::string*> name_of;
  for (const auto& [name, tensor] : names) name_of.emplace(tensor.unsafeGetTensorImpl(), &name);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const GradBucket& bucket = buckets[b];
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const auto found = name_of.find(bucket.parameters[i].unsafeGetTensorImpl());
      LOCKSTEP_CHECK(found != name_of.end(), "parameter ", i, " of bucket ", b, " has no name");
      const torch::Tensor& like = bucket.gradients[i];
      parameters_.push_back(
          {*found->second, b, i, offset_of(bucket, i), like.sizes().vec(), like.strides().vec()});
    }
    steps_.emplace_back(bucket.parameters.size());
    options_.push_back(bucket.buffer.options());
    Tensors shards;
    for (std::size_t s = 0; s < state_names_.size(); ++s) {
      shards.push_back(torch::zeros({bucket.buffer.numel() / group_.size()}, options_.back()));
    }
    shards_.push_back(std::move(shards));
  }
}

torch::Tensor ShardedState::whole_bucket(std::size_t bucket) const {
  return torch::zeros({shards_[bucket][0].numel() * group_.size()}, options_[bucket]);
}

torch::Tensor ShardedState::view_in(const Tensors& flats, const BucketedParameter& parameter) {
  return flats[parameter.bucket].as_strided(parameter.sizes, parameter.strides, parameter.offset);
}

std::string ShardedState::key(std::size_t state, const BucketedParameter& parameter) const {
  return state_names_[state] + '.' + parameter.name;
}

std::vector<std::int64_t> ShardedState::all_steps() const {
  std::vector<std::int64_t> all;
  for (const auto& of_bucket : steps_) all.insert(all.end(), of_bucket.begin(), of_bucket.end());
  return all;
}

void ShardedState::set_all_steps(const std::vector<std::int64_t>& steps) {
  auto next = steps.begin();
  for (auto& of_bucket : steps_) {
    for (std::int64_t& each : of_bucket) each = *next++;
  }
}

NamedTensors ShardedState::gather(int root) {
  const torch::NoGradGuard no_grad;
  const bool is_root = group_.rank() == root;
  NamedTensors whole;
  for (std::size_t s = 0; s < state_names_.size(); ++s) {
    Tensors flats;
    for (std::size_t b = 0; b < shards_.size(); ++b) {
      if (is_root) flats.push_back(whole_bucket(b));
      group_.gather(shards_[b][s], is_root ? flats[b].chunk(group_.size()) : Tensors{}, root);
    }
    if (!is_root) continue;
    for (const BucketedParameter& parameter : parameters_) {
      whole.emplace_back(key(s, parameter), view_in(flats, parameter));
    }
  }
  if (!is_root || !counts_steps_) return whole;
  for (const BucketedParameter& parameter : parameters_) {
    whole.emplace_back(
        step_key(parameter.name),
        torch::scalar_tensor(steps_[parameter.bucket][parameter.index], torch::kInt64));
  }
  return whole;
}

void ShardedState::scatter(const NamedTensors& whole, int root) {
  const torch::NoGradGuard no_grad;
  const bool is_root = group_.rank() == root;
  const ByName by_name = is_root ? ByName(whole.begin(), whole.end()) : ByName();
  // The other ranks must not wait for data that will not come.
  const std::string error = group_.broadcast_object(is_root ? why_not(by_name) : "", root);
  if (!error.empty()) throw CheckpointError(error);
  for (std::size_t s = 0; s < state_names_.size(); ++s) {
    Tensors flats;
    if (is_root) {
      for (std::size_t b = 0; b < shards_.size(); ++b) flats.push_back(whole_bucket(b));
      for (const BucketedParameter& parameter : parameters_) {
        view_in(flats, parameter).copy_(by_name.at(key(s, parameter)));
      }
    }
    for (std::size_t b = 0; b < shards_.size(); ++b) {
      group_.scatter(shards_[b][s], is_root ? flats[b].chunk(group_.size()) : Tensors{}, root);
    }
  }
  if (counts_steps_) scatter_steps(by_name, root);
}

void ShardedState::scatter_steps(const ByName& whole, int root) {
  auto steps = torch::zeros({static_cast<std::int64_t>(parameters_.size())}, torch::kInt64);
  auto* const data = steps.data_ptr<std::int64_t>();
  for (std::size_t p = 0; group_.rank() == root && p < parameters_.size(); ++p) {
    data[p] = whole.at(step_key(parameters_[p].name)).item<std::int64_t>();
  }
  auto on_device = steps.to(options_.front().device());
  group_.broadcast(on_device, root);
  steps.copy_(on_device);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    steps_[parameters_[p].bucket][parameters_[p].index] = data[p];
  }
}

// Empty if `whole` matches this optimizer's state.
std::string ShardedState::why_not(const ByName& whole) const {
  std::set<std::string> expected;
  std::string error;
  const auto expect = [&](const std::string& name, torch::ScalarType type, at::IntArrayRef sizes) {
    expected.insert(name);
    const auto found = whole.find(name);
    if (found == whole.end()) {
      error = lockstep::str("optimizer state: '", name, "' is missing");
    } else if (!found->second.defined()) {
      error = lockstep::str("optimizer state: '", name, "' is undefined, expected ",
                            type_and_shape(type, sizes));
    } else if (found->second.sizes() != sizes || found->second.scalar_type() != type) {
      error = lockstep::str("optimizer state: '", name, "' is ",
                            type_and_shape(found->second.scalar_type(), found->second.sizes()),
                            ", expected ", type_and_shape(type, sizes));
    }
  };
  for (const BucketedParameter& parameter : parameters_) {
    const auto type = c10::typeMetaToScalarType(options_[parameter.bucket].dtype());
    for (std::size_t s = 0; s < state_names_.size(); ++s)
      expect(key(s, parameter), type, parameter.sizes);
    if (counts_steps_) expect(step_key(parameter.name), torch::kInt64, {});
  }
  for (const auto& [name, tensor] : whole) {
    if (!expected.contains(name))
      error = lockstep::str("optimizer state: '", name, "' is unexpected");
  }
  return error;
}

std::int64_t ShardedState::bytes() const {
  std::int64_t sum = 0;
  for (const Tensors& shards : shards_) {
    for (const torch::Tensor& shard : shards) sum += static_cast<std::int64_t>(shard.nbytes());
  }
  return sum;
}

}  // namespace lockstep::parallel
