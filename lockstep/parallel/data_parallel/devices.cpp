#include <lockstep/parallel/data_parallel/devices.h>

#include <cstddef>
#include <exception>
#include <string>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep::data_parallel {
namespace {

// `device` with an index. ConfigError if this process has no such device.
torch::Device existing_accelerator(torch::Device device) {
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    throw ConfigError(lockstep::str("DataParallel: ", device,
                                    " cannot be used: this LibTorch is built without ", type,
                                    "; use a build with it, or \"cpu\" devices"));
  }
  const auto* const guard = c10::impl::getDeviceGuardImpl(device.type());
  const int count = guard->deviceCount();
  if (count == 0) {
    throw ConfigError(lockstep::str("DataParallel: ", device,
                                    " does not exist: this process sees no ", type,
                                    " device; use \"cpu\" devices"));
  }
  if (!device.has_index()) device = torch::Device(device.type(), guard->getDevice().index());
  if (device.index() >= count) {
    throw ConfigError(lockstep::str("DataParallel: ", device, " does not exist: this process sees ",
                                    amount_of(count, type + " device"), ", the last of which is ",
                                    type, ":", count - 1));
  }
  return device;
}

}  // namespace

std::vector<torch::Device> devices_named(std::initializer_list<const char*> names) {
  std::vector<torch::Device> devices;
  for (const char* name : names) {
    try {
      devices.emplace_back(std::string(name));
    } catch (const std::exception&) {
      throw ConfigError(
          lockstep::str("DataParallel: \"", name,
                        "\" names no device; expected a name such as \"cpu\" or \"cuda:0\""));
    }
  }
  return devices;
}

std::vector<torch::Device> checked_devices(std::vector<torch::Device> devices) {
  if (devices.empty()) {
    throw ConfigError(
        "DataParallel: devices must not be empty: give one for each replica, as in {\"cpu\", "
        "\"cpu\"}");
  }
  for (torch::Device& device : devices) {
    if (device.type() != devices.front().type()) {
      throw ConfigError(lockstep::str("DataParallel: all devices must be of one type, got ",
                                      devices.front(), " and ", device));
    }
    device = device.is_cpu() ? torch::Device(torch::kCPU) : existing_accelerator(device);
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (devices[i].is_cpu() || devices[i] != devices[j]) continue;
      throw ConfigError(
          lockstep::str("DataParallel: ", devices[i], " is given twice; replicas need a GPU each"));
    }
  }
  return devices;
}

}  // namespace lockstep::data_parallel
