#include <lockstep/comm/call/backend_names.h>

namespace lockstep {
namespace {

struct NamedBackend {
  const char* name;
  bool needs_gpu;      ///< works with tensors on a GPU only
  bool between_hosts;  ///< can be what the hosts of "hierarchical" communicate over
};

constexpr NamedBackend kBackends[] = {
    {.name = "auto", .needs_gpu = false, .between_hosts = true},
    {.name = "shm", .needs_gpu = false, .between_hosts = false},
    {.name = "gloo", .needs_gpu = false, .between_hosts = true},
    {.name = "nccl", .needs_gpu = true, .between_hosts = true},
    {.name = "hierarchical", .needs_gpu = false, .between_hosts = false},
};

template <class Condition>
std::vector<std::string> names_where(Condition condition) {
  std::vector<std::string> names;
  for (const NamedBackend& each : kBackends) {
    if (condition(each)) names.emplace_back(each.name);
  }
  return names;
}

}  // namespace

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names =
      names_where([](const NamedBackend&) { return true; });
  return names;
}

const std::vector<std::string>& host_backend_names() {
  static const std::vector<std::string> names =
      names_where([](const NamedBackend& each) { return !each.needs_gpu; });
  return names;
}

const std::vector<std::string>& leaders_names() {
  static const std::vector<std::string> names =
      names_where([](const NamedBackend& each) { return each.between_hosts; });
  return names;
}

}  // namespace lockstep
