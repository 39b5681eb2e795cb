// A stand-in for the functions of NVML that Lockstep uses, for machines without a GPU. It reports
// two GPUs, the second of which does not report its power. The first is near processor 0, the other
// near processors 1 and 64. With LOCKSTEP_TEST_NVML_FAILS, it finds no driver.
// LOCKSTEP_TEST_NVML_LACKS names a question that it does not answer.
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kDone = 0;
constexpr int kNotFound = 6;      // NVML_ERROR_NOT_FOUND
constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED
constexpr int kNoDriver = 9;      // NVML_ERROR_DRIVER_NOT_LOADED

int gpus[2];

bool lacks(const char* question) {
  const char* const named = std::getenv("LOCKSTEP_TEST_NVML_LACKS");
  return named != nullptr && std::strcmp(named, question) == 0;
}

struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("LOCKSTEP_TEST_NVML_FAILS") != nullptr ? kNoDriver : kDone; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (lacks("count")) return kNotSupported;
  *count = 2;
  return kDone;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index > 1) return kNotFound;
  *device = &gpus[index];
  return kDone;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-second") != 0) return kNotFound;
  *device = &gpus[1];
  return kDone;
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  if (lacks("utilization")) return kNotSupported;
  const bool first = device == &gpus[0];
  *rates = {first ? 80U : 40U, first ? 20U : 10U};
  return kDone;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (lacks("memory")) return kNotSupported;
  *memory = {80ULL << 30, 60ULL << 30, device == &gpus[0] ? 20ULL << 30 : 10ULL << 30};
  return kDone;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (device != &gpus[0]) return kNotSupported;
  *milliwatts = 350500;
  return kDone;
}

int nvmlDeviceGetCpuAffinity(void* device, unsigned words, unsigned long* mask) {
  if (lacks("affinity")) return kNotSupported;
  std::memset(mask, 0, words * sizeof(unsigned long));
  mask[0] = device == &gpus[0] ? 1 : 2;
  if (device == &gpus[1] && words > 1) mask[1] = 1;
  return kDone;
}

}  // extern "C"
