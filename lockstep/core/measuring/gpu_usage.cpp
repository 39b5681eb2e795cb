#include <lockstep/core/measuring/gpu_usage.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include <lockstep/core/module_file.h>

namespace lockstep {
namespace {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;  // NVML_SUCCESS

using NvmlDevice = void*;

struct NvmlUtilization {  // nvmlUtilization_t: percent
  unsigned gpu = 0;
  unsigned memory = 0;
};

struct NvmlMemory {  // nvmlMemory_t: bytes
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

template <class Function>
void find_symbol(void* library, const char* name, Function*& function, bool& all_found) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  all_found = all_found && function != nullptr;
}

// The NVML functions in use.
struct Nvml {
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;                        // milliwatts
  int (*cpu_affinity)(NvmlDevice, unsigned, unsigned long*) = nullptr;  // words, mask of processors
};

// The library stays loaded and initialised for the life of the process.
std::optional<Nvml> open_nvml() {
  void* const library = dlopen(module_file(kNvmlLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Nvml nvml;
  bool all_found = true;
  find_symbol(library, "nvmlInit_v2", nvml.init, all_found);
  find_symbol(library, "nvmlDeviceGetCount_v2", nvml.count, all_found);
  find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", nvml.by_index, all_found);
  find_symbol(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid, all_found);
  find_symbol(library, "nvmlDeviceGetUtilizationRates", nvml.utilization, all_found);
  find_symbol(library, "nvmlDeviceGetMemoryInfo", nvml.memory, all_found);
  find_symbol(library, "nvmlDeviceGetPowerUsage", nvml.power, all_found);
  find_symbol(library, "nvmlDeviceGetCpuAffinity", nvml.cpu_affinity, all_found);
  if (!all_found || nvml.init() != kSuccess) return std::nullopt;
  return nvml;
}

const std::optional<Nvml>& nvml() {
  static const std::optional<Nvml> library = open_nvml();
  return library;
}

// The devices that are visible to CUDA in this process, in its order. CUDA stops at the first entry
// of CUDA_VISIBLE_DEVICES that is not a GPU.
std::vector<NvmlDevice> visible_devices(const Nvml& library) {
  unsigned count = 0;
  if (library.count(&count) != kSuccess) return {};
  std::vector<NvmlDevice> devices;
  const auto add = [&](int result, NvmlDevice device) {
    if (result == kSuccess) devices.push_back(device);
    return result == kSuccess;
  };
  NvmlDevice device = nullptr;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (unsigned index = 0; index < count; ++index) {
      const int result = library.by_index(index, &device);
      if (!add(result, device)) break;
    }
    return devices;
  }
  const std::string visible = text;  // no device if empty
  for (std::size_t at = 0; at < visible.size();) {
    const std::size_t comma = std::min(visible.find(',', at), visible.size());
    const std::string entry = visible.substr(at, comma - at);
    at = comma + 1;
    unsigned index = 0;
    const char* const end = entry.data() + entry.size();
    const auto [stop, error] = std::from_chars(entry.data(), end, index);
    const bool is_index = error == std::errc() && stop == end;
    const int result =
        is_index ? library.by_index(index, &device) : library.by_uuid(entry.c_str(), &device);
    if (!add(result, device)) break;
  }
  return devices;
}

std::optional<NvmlDevice> visible_device(int index) {
  if (!nvml() || index < 0) return std::nullopt;
  static const std::vector<NvmlDevice> devices = visible_devices(*nvml());
  if (static_cast<std::size_t>(index) >= devices.size()) return std::nullopt;
  return devices[static_cast<std::size_t>(index)];
}

}  // namespace

int count_visible_gpus() { return nvml() ? static_cast<int>(visible_devices(*nvml()).size()) : 0; }

std::optional<GpuUsage> gpu_usage(int index) {
  const std::optional<NvmlDevice> device = visible_device(index);
  if (!device) return std::nullopt;
  NvmlUtilization rates;
  NvmlMemory memory;
  unsigned milliwatts = 0;
  if (nvml()->utilization(*device, &rates) != kSuccess ||
      nvml()->memory(*device, &memory) != kSuccess) {
    return std::nullopt;
  }
  // Some GPUs do not report their power, which is then 0.
  if (nvml()->power(*device, &milliwatts) != kSuccess) milliwatts = 0;
  constexpr double kPercent = 0.01;
  constexpr double kMilli = 0.001;
  return GpuUsage{.utilisation = kPercent * rates.gpu,
                  .memory_utilisation = kPercent * rates.memory,
                  .memory_bytes = static_cast<std::int64_t>(memory.used),
                  .power_watts = kMilli * milliwatts};
}

std::vector<int> cpus_near_gpu(int index) {
  constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  const std::optional<NvmlDevice> device = visible_device(index);
  std::array<unsigned long, 4096 / kWordBits> mask{};
  if (!device ||
      nvml()->cpu_affinity(*device, static_cast<unsigned>(mask.size()), mask.data()) != kSuccess) {
    return {};
  }
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < kWordBits * mask.size(); ++cpu) {
    if ((mask[cpu / kWordBits] >> cpu % kWordBits & 1) != 0) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace lockstep
