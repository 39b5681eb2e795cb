#include <lockstep/parallel/data_parallel/module_parts.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep::detail::data_parallel {
namespace {

void collect_parts(torch::nn::Module& module, ModuleParts& parts) {
  parts.modules.push_back(&module);
  for (const torch::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    if (parameter.defined()) parts.parameters.push_back(parameter);
  }
  for (const torch::Tensor& buffer : module.buffers(/*recurse=*/false)) {
    if (buffer.defined()) parts.buffers.push_back(buffer);
  }
  for (const auto& child : module.children()) collect_parts(*child, parts);
}

bool same_tensors(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return x.is_same(y); });
}

std::string nth_name(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                     std::size_t index) {
  return index < tensors.size() ? tensors[index].key() : lockstep::str("number ", index);
}

}  // namespace

bool ModuleParts::same_as(const ModuleParts& other) const {
  return modules == other.modules && same_tensors(parameters, other.parameters) &&
         same_tensors(buffers, other.buffers);
}

ModuleParts parts_of(torch::nn::Module& module) {
  ModuleParts parts;
  collect_parts(module, parts);
  return parts;
}

void require_place(const torch::nn::Module& module, const ModuleParts& parts,
                   torch::Device device) {
  const auto require = [&](const std::vector<torch::Tensor>& tensors, const char* what,
                           auto name_of) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].device() == device) continue;
      throw ConfigError(lockstep::str("DataParallel: ", what, " '", name_of(module, i), "' is on ",
                                      tensors[i].device(), ", expected on ", device,
                                      ", the first device; move the module there: "
                                      "module->to(device)"));
    }
  };
  require(parts.parameters, "parameter", parameter_name);
  require(parts.buffers, "buffer", buffer_name);
}

std::string parameter_name(const torch::nn::Module& module, std::size_t index) {
  return nth_name(module.named_parameters(), index);
}

std::string buffer_name(const torch::nn::Module& module, std::size_t index) {
  return nth_name(module.named_buffers(), index);
}

}  // namespace lockstep::detail::data_parallel
