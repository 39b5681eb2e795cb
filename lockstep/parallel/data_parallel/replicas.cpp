#include <lockstep/parallel/data_parallel/replicas.h>

#include <exception>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <lockstep/core/error.h>
#include <lockstep/program/unchanged_generator.h>

namespace lockstep::detail::data_parallel {
namespace {

bool is_alias(const torch::Tensor& copy, const torch::Tensor& original) {
  return copy.has_storage() && original.has_storage() && copy.is_alias_of(original) &&
         copy.storage_offset() == original.storage_offset() &&
         copy.scalar_type() == original.scalar_type() && copy.sizes() == original.sizes() &&
         copy.strides() == original.strides();
}

// `copy` keeps its identity and its autograd state but gets the memory of `original`.
void make_alias(const torch::Tensor& copy, const torch::Tensor& original) {
  if (!is_alias(copy, original)) copy.set_data(original);
}

// Lets autograd detect that the original was changed between forward and backward.
void share_version(const torch::Tensor& copy, const torch::Tensor& original) {
  if (original.is_inference()) return;
  torch::autograd::impl::set_version_counter(copy,
                                             torch::autograd::impl::version_counter(original));
}

void follow_gradients(const torch::Tensor& copy, const torch::Tensor& original) {
  const bool wanted = original.requires_grad();
  if (copy.requires_grad() != wanted) copy.set_requires_grad(wanted);
}

std::size_t first_difference(const std::vector<torch::Tensor>& a,
                             const std::vector<torch::Tensor>& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i].sizes() == b[i].sizes()) ++i;
  return i;
}

}  // namespace

Replicas::Replicas(torch::nn::Module& module, std::vector<torch::Device> devices)
    : module_(&module), devices_(std::move(devices)) {
  follow();
}

Replicas::Copy Replicas::copy_on(torch::Device device) const {
  Copy copy;
  try {
    copy.module = module_->clone(device);
  } catch (const std::exception& error) {
    throw ConfigError(
        lockstep::str("DataParallel: ", module_->name(), " cannot be cloned (", first_line(error),
                      "); derive it and its submodules from torch::nn::Cloneable<T> and register "
                      "everything in reset()"));
  }
  copy.parts = parts_of(*copy.module);
  return copy;
}

// ConfigError if a copy made by reset() does not match the module.
void Replicas::check(const Copy& copy, const ModuleParts& parts) const {
  const auto require = [&](const std::vector<torch::Tensor>& originals,
                           const std::vector<torch::Tensor>& tensors, const char* what,
                           auto name_of) {
    const std::size_t i = first_difference(originals, tensors);
    if (i < originals.size() || i < tensors.size()) {
      throw ConfigError(
          lockstep::str("DataParallel: the clone of ", module_->name(), " has ", tensors.size(),
                        " ", what, "s, the module ", originals.size(), ", and they differ from '",
                        i < originals.size() ? name_of(*module_, i) : name_of(*copy.module, i),
                        "' on; reset() must register what the module has"));
    }
    for (std::size_t k = 0; k < originals.size(); ++k) {
      if (!tensors[k].is_same(originals[k])) continue;
      throw ConfigError(lockstep::str("DataParallel: the clone of ", module_->name(),
                                      " shares the ", what, " '", name_of(*module_, k),
                                      "' with the module; reset() must make its submodules "
                                      "and tensors anew and assign them to the members"));
    }
  };
  for (std::size_t i = 0; i < parts.modules.size() && i < copy.parts.modules.size(); ++i) {
    if (parts.modules[i] != copy.parts.modules[i]) continue;
    throw ConfigError(lockstep::str("DataParallel: the clone of ", module_->name(), " shares its ",
                                    parts.modules[i]->name(),
                                    " with the module; reset() must make its submodules "
                                    "and tensors anew and assign them to the members"));
  }
  require(parts.parameters, copy.parts.parameters, "parameter", parameter_name);
  require(parts.buffers, copy.parts.buffers, "buffer", buffer_name);
  if (parts.modules.size() != copy.parts.modules.size()) {
    throw ConfigError(lockstep::str("DataParallel: the clone of ", module_->name(), " has ",
                                    copy.parts.modules.size(), " modules, the module itself ",
                                    parts.modules.size(),
                                    "; reset() must register what the module has"));
  }
}

void Replicas::make(ModuleParts parts) {
  // clone() calls reset(), which draws initial weights.
  const program::UnchangedGenerator unchanged_generator;
  std::vector<torch::Tensor> parameters;
  std::vector<std::size_t> number_of;  // for each of parts.parameters, its index in `parameters`
  std::unordered_map<const torch::TensorImpl*, std::size_t> numbers;
  for (const torch::Tensor& parameter : parts.parameters) {
    const auto [place, is_new] =
        numbers.emplace(parameter.unsafeGetTensorImpl(), parameters.size());
    if (is_new) parameters.push_back(parameter);
    number_of.push_back(place->second);
  }
  std::vector<Copy> copies;
  for (const torch::Device device : devices_) {
    Copy copy = copy_on(device);
    check(copy, parts);
    std::unordered_map<const torch::TensorImpl*, std::size_t> stands_for;
    for (std::size_t i = 0; i < number_of.size(); ++i) {
      const torch::Tensor& tensor = copy.parts.parameters[i];
      const auto [place, is_new] = stands_for.emplace(tensor.unsafeGetTensorImpl(), number_of[i]);
      if (is_new) copy.leaves.push_back({tensor, number_of[i]});
      if (place->second == number_of[i]) continue;
      throw ConfigError(lockstep::str("DataParallel: the clone of ", module_->name(),
                                      " ties its parameter '", parameter_name(*module_, i),
                                      "' to another one, the module does not; "
                                      "reset() must register what the module has"));
    }
    copies.push_back(std::move(copy));
  }
  std::vector<Broadcast::Target> for_parameters, for_buffers;
  for (std::size_t r = 0; r < copies.size(); ++r) {
    const ModuleParts& mine = copies[r].parts;
    if (!shares_parameters(r)) for_parameters.push_back({devices_[r], mine.parameters});
    if (r > 0) for_buffers.push_back({devices_[r], mine.buffers});
    for (std::size_t i = 0; shares_parameters(r) && i < mine.parameters.size(); ++i) {
      share_version(mine.parameters[i], parts.parameters[i]);
    }
    for (std::size_t i = 0; r == 0 && i < mine.buffers.size(); ++i) {
      share_version(mine.buffers[i], parts.buffers[i]);
    }
  }
  parts_ = std::move(parts);
  parameters_ = std::move(parameters);
  copies_ = std::move(copies);
  parameters_to_others_ = Broadcast(std::move(for_parameters));
  buffers_to_others_ = Broadcast(std::move(for_buffers));
}

void Replicas::follow() {
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  ModuleParts now = parts_of(*module_);
  require_place(*module_, now, devices_.front());
  if (copies_.empty() || !now.same_as(parts_)) make(std::move(now));
  for (std::size_t r = 0; r < copies_.size(); ++r) {
    const ModuleParts& mine = copies_[r].parts;
    for (std::size_t i = 0; i < mine.modules.size(); ++i) {
      // From the root down, because train() also sets the modules below.
      const bool training = parts_.modules[i]->is_training();
      if (mine.modules[i]->is_training() != training) mine.modules[i]->train(training);
    }
    for (std::size_t i = 0; i < mine.parameters.size(); ++i) {
      if (shares_parameters(r)) make_alias(mine.parameters[i], parts_.parameters[i]);
      follow_gradients(mine.parameters[i], parts_.parameters[i]);
    }
    for (std::size_t i = 0; r == 0 && i < mine.buffers.size(); ++i) {
      make_alias(mine.buffers[i], parts_.buffers[i]);
    }
  }
  // Sent at each forward, whether or not they have changed: `parameter.data().add_(...)` and
  // optimizers over flat memory do not raise a version counter.
  parameters_to_others_.send(parts_.parameters);
  buffers_to_others_.send(parts_.buffers);
}

std::string Replicas::name_of(const torch::Tensor& tensor) const {
  for (std::size_t i = 0; i < parts_.parameters.size(); ++i) {
    if (parts_.parameters[i].is_same(tensor)) return parameter_name(*module_, i);
  }
  return "";
}

}  // namespace lockstep::detail::data_parallel
