#include <lockstep/parallel/base/require_on_device.h>

#include <lockstep/core/error.h>

namespace lockstep::parallel {

void require_on_device(const torch::nn::Module& stage, std::size_t number, torch::Device device,
                       const std::string& prefix) {
  const auto require = [&](const auto& tensors, const char* what) {
    for (const auto& item : tensors) {
      if (item.value().device() == device) continue;
      throw ConfigError(lockstep::str(prefix, what, " '", item.key(), "' of stage ", number,
                                      " belongs to a stage on ", item.value().device(),
                                      ", too; stages on different devices cannot share a ", what));
    }
  };
  require(stage.named_parameters(), "parameter");
  require(stage.named_buffers(), "buffer");
}

}  // namespace lockstep::parallel
