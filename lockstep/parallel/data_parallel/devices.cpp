#include <lockstep/parallel/data_parallel/devices.h>

#include <cstddef>
#include <exception>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/existing_device.h>

namespace lockstep::detail::data_parallel {

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

std::vector<torch::Device> checked_devices(std::vector<torch::Device> devices, bool share_gpus) {
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
    device = parallel::existing_device(device, "DataParallel: ");
  }
  if (share_gpus) return devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (devices[i].is_cpu() || devices[i] != devices[j]) continue;
      throw ConfigError(
          lockstep::str("DataParallel: ", devices[i],
                        " is listed twice; use a different GPU for each replica, or set "
                        "DataParallelOptions::share_gpus"));
    }
  }
  return devices;
}

}  // namespace lockstep::detail::data_parallel
