#include <lockstep/comm/call/backend_names.h>

namespace lockstep {

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = {"auto", "shm", "gloo", "nccl", "hierarchical"};
  return names;
}

}  // namespace lockstep
