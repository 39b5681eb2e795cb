#include <lockstep/comm/call/backend_names.h>

namespace lockstep::comm {
namespace {

struct NamedBackend {
  const char* name;
  bool needs_gpu;  ///< works with tensors on a GPU only
};

constexpr NamedBackend kBackends[] = {
    {.name = "auto", .needs_gpu = false},         {.name = "shm", .needs_gpu = false},
    {.name = "gloo", .needs_gpu = false},         {.name = "nccl", .needs_gpu = true},
    {.name = "hierarchical", .needs_gpu = false},
};

std::vector<std::string> names(bool with_those_of_gpus) {
  std::vector<std::string> names;
  for (const NamedBackend& each : kBackends) {
    if (with_those_of_gpus || !each.needs_gpu) names.emplace_back(each.name);
  }
  return names;
}

}  // namespace

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> all = names(/*with_those_of_gpus=*/true);
  return all;
}

const std::vector<std::string>& host_backend_names() {
  static const std::vector<std::string> of_hosts = names(/*with_those_of_gpus=*/false);
  return of_hosts;
}

}  // namespace lockstep::comm
