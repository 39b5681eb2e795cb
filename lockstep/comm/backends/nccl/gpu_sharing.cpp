#include <lockstep/comm/backends/nccl/gpu_sharing.h>

#include <dlfcn.h>

#include <cstdlib>

#include <lockstep/core/environment.h>
#include <lockstep/core/strings.h>

namespace lockstep::nccl {
namespace {

constexpr char kHostId[] = "NCCL_HOSTID";
constexpr char kMultiRank[] = "NCCL_MULTI_RANK_GPU_ENABLE";

// NCCL's form of a version since 2.9. Older ones (2.8.3 is 2803) are smaller than all of these.
constexpr int version_code(int first, int second) { return first * 10000 + second * 100; }

constexpr int kFirstWithOwnHosts = version_code(2, 28);  // the oldest NCCL of a supported LibTorch
constexpr int kFirstOnRequest = version_code(2, 30);

}  // namespace

std::optional<int> loaded_version() {
  // Looked up at run time, so that programs without LibTorch can ask. A build with NCCL has loaded
  // it together with LibTorch.
  using GetVersion = int (*)(int*);
  const auto get = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return std::nullopt;
  return version;
}

std::string version_text(int version) {
  const int scale = version < 10000 ? 1000 : 10000;  // before 2.9: 2803 is 2.8.3
  return str(version / scale, '.', version % scale / 100, '.', version % 100);
}

std::optional<GpuSharing> gpu_sharing(std::optional<int> version) {
  if (!version || *version < kFirstWithOwnHosts) return std::nullopt;
  return *version < kFirstOnRequest ? GpuSharing::kOwnHosts : GpuSharing::kOnRequest;
}

std::vector<std::pair<std::string, std::string>> sharing_variables(GpuSharing sharing, int rank,
                                                                   bool one_host) {
  if (sharing == GpuSharing::kOnRequest) {
    // NVLink SHARP cannot have two ranks on one GPU. The kernels of all its ranks must have room on
    // the GPU together, because each waits for the others.
    return {{kMultiRank, "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "2"}};
  }
  // On machines whose NVLink spans hosts, NCCL would otherwise use it between these "hosts". NCCL
  // never tries peer access or shared memory between hosts, so nothing needs to disable these.
  std::vector<std::pair<std::string, std::string>> variables = {
      {kHostId, str("lockstep-rank-", rank)}, {"NCCL_MNNVL_ENABLE", "0"}};
  if (one_host) {
    variables.emplace_back("NCCL_NET", "Socket");
    variables.emplace_back("NCCL_SOCKET_IFNAME", "=lo");  // "=": this name, not names that begin so
  }
  return variables;
}

void share_gpu(GpuSharing sharing, int rank, bool one_host) {
  for (const auto& [name, value] : sharing_variables(sharing, rank, one_host)) {
    setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
  }
}

bool may_share_gpu() {
  const auto on_request = environment_string(kMultiRank);
  return (on_request && *on_request != "0") || environment_string(kHostId);
}

}  // namespace lockstep::nccl
