#include <lockstep/parallel/base/existing_device.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep::parallel {

torch::Device existing_device(torch::Device device, const std::string& prefix) {
  if (device.is_cpu()) return torch::Device(torch::kCPU);
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    throw ConfigError(lockstep::str(prefix, device,
                                    " cannot be used: this LibTorch is built without ", type,
                                    "; use a build with it, or \"cpu\" devices"));
  }
  const auto* const guard = c10::impl::getDeviceGuardImpl(device.type());
  const int count = guard->deviceCount();
  if (count == 0) {
    throw ConfigError(lockstep::str(prefix, device, " does not exist: this process sees no ", type,
                                    " device; use \"cpu\" devices"));
  }
  if (!device.has_index()) device = torch::Device(device.type(), guard->getDevice().index());
  if (device.index() >= count) {
    throw ConfigError(lockstep::str(prefix, device, " does not exist: this process sees ",
                                    amount_of(count, type + " device"), ", the last of which is ",
                                    type, ":", count - 1));
  }
  return device;
}

}  // namespace lockstep::parallel
