#include <lockstep/comm/call/backend_names.h>

#include <algorithm>

#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

std::vector<std::string> names(bool with_those_of_gpus) {
  std::vector<std::string> names;
  for (const NamedBackend& each : named_backends()) {
    if (with_those_of_gpus || !each.needs_gpu) names.push_back(each.name);
  }
  return names;
}

}  // namespace

const std::vector<NamedBackend>& named_backends() {
  static const std::vector<NamedBackend> all = {
      {.name = "auto", .has_symmetric_memory = true, .runs_on_stream = true},
      {.name = "shm", .has_symmetric_memory = true},
      {.name = "gloo"},
      {.name = "nccl", .needs_gpu = true, .has_symmetric_memory = true, .runs_on_stream = true},
      {.name = "hierarchical", .has_symmetric_memory = true},
  };
  return all;
}

const NamedBackend& named_backend(const std::string& name) {
  const auto& all = named_backends();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const NamedBackend& each) { return each.name == name; });
  LOCKSTEP_CHECK(found != all.end(), "no backend is called ", name);
  return *found;
}

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> all = names(/*with_those_of_gpus=*/true);
  return all;
}

const std::vector<std::string>& host_backend_names() {
  static const std::vector<std::string> of_hosts = names(/*with_those_of_gpus=*/false);
  return of_hosts;
}

}  // namespace lockstep::comm
