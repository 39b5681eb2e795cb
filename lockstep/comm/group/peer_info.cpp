#include <lockstep/comm/group/peer_info.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include <lockstep/comm/backends/nccl/nccl.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/comm/group/device_copies.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

std::uint64_t name_space(const char* path) {
  struct stat info{};
  return stat(path, &info) == 0 ? info.st_ino : 0;
}

// Identifies one boot of one kernel and one process-id namespace within it, because shared-memory
// segments are found by process id. Ranks in different network namespaces count as different hosts;
// this covers containers, and tests use it to simulate several hosts.
std::string host_identity(const ProcessGroupOptions& options) {
  if (options.host_id) return *options.host_id;
  if (const auto given = environment_string("LOCKSTEP_HOST_ID")) return *given;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return lockstep::str(boot, ' ', name_space("/proc/self/ns/pid"), ' ',
                       name_space("/proc/self/ns/net"));
}

// A device other than a GPU has no globally unique name, so it is identified by its host and index.
std::string device_identity(torch::Device device, const std::string& host) {
  if (device.is_cpu()) return "";
  if (device.is_cuda()) return nccl::device_identity(device);
  return lockstep::str(host, ' ', device);
}

// Makes `device` the current one and returns its identity.
std::string take_device(torch::Device device, const std::string& host, int world_rank) {
  try {
    set_current_device(device);
    return device_identity(device, host);
  } catch (const Error& error) {
    throw ConfigError(lockstep::str("rank ", world_rank, ": ", error.what()));
  } catch (const std::exception& error) {
    throw ConfigError(lockstep::str("rank ", world_rank, ": device ", device,
                                    " cannot be used: ", first_line(error)));
  }
}

std::string to_text(const PeerInfo& peer) {
  return lockstep::str(peer.backend, '\n', peer.device, '\n', peer.gpu, '\n', peer.host, '\n',
                       peer.world_rank, '\n', peer.label, '\n', peer.joined_at, '\n', peer.process);
}

PeerInfo peer_info_of(const std::string& text) {
  PeerInfo peer;
  std::istringstream in(text);
  for (auto* field : {&peer.backend, &peer.device, &peer.gpu, &peer.host}) {
    std::getline(in, *field);
  }
  in >> peer.world_rank >> peer.label >> peer.joined_at >> peer.process;
  return peer;
}

}  // namespace

PeerInfo own_peer_info(const ProcessGroupOptions& options, int world_rank,
                       const std::string& label) {
  const std::string host = host_identity(options);
  return {.backend = options.backend,
          .device = c10::DeviceTypeName(options.device.type(), /*lower_case=*/true),
          .gpu = take_device(options.device, host, world_rank),
          .host = host,
          .world_rank = world_rank,
          .label = label,
          .joined_at = std::time(nullptr),
          .process = getpid()};
}

std::vector<PeerInfo> exchange_peer_infos(TextExchange& exchange, const PeerInfo& own) {
  std::vector<PeerInfo> peers;
  for (const auto& text : exchange.exchange(kChoiceOfBackend, to_text(own))) {
    peers.push_back(peer_info_of(text));
  }
  const PeerInfo& first = peers[0];
  for (std::size_t rank = 1; rank < peers.size(); ++rank) {
    const PeerInfo& other = peers[rank];
    if (other.backend != first.backend || other.device != first.device) {
      throw ConfigError(lockstep::str("ranks want different things: rank ", first.world_rank,
                                      " backend ", first.backend, " on ", first.device, ", rank ",
                                      other.world_rank, " backend ", other.backend, " on ",
                                      other.device));
    }
  }
  return peers;
}

std::string job_name(const std::vector<PeerInfo>& peers) {
  std::tm utc{};
  gmtime_r(&peers[0].joined_at, &utc);
  std::ostringstream name;
  name << std::put_time(&utc, "%Y%m%dT%H%M%SZ") << '-' << peers[0].process;
  return name.str();
}

bool each_has_a_gpu(const std::vector<PeerInfo>& peers) {
  std::set<std::string> gpus;
  for (const PeerInfo& peer : peers) {
    const bool has_one = peer.device == "cuda" && !peer.gpu.empty();
    if (!has_one || !gpus.insert(peer.gpu).second) return false;
  }
  return true;
}

std::string shared_devices(const std::vector<PeerInfo>& peers) {
  std::vector<std::string> devices;  // ordered by their first ranks
  std::map<std::string, std::vector<int>> ranks;
  for (const PeerInfo& peer : peers) {
    if (peer.gpu.empty()) continue;
    auto& on_it = ranks[peer.gpu];
    if (on_it.empty()) devices.push_back(peer.gpu);
    on_it.push_back(peer.world_rank);
  }
  std::string text;
  for (const std::string& device : devices) {
    if (ranks[device].size() < 2) continue;
    text += lockstep::str(text.empty() ? "ranks " : "; ranks ", join(ranks[device]), " share ",
                          text.empty() ? "a GPU" : "another");
  }
  return text;
}

std::vector<std::vector<int>> ranks_by_host(const std::vector<PeerInfo>& peers) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> hosts;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const auto place = std::find(names.begin(), names.end(), peers[rank].host);
    const auto host = static_cast<std::size_t>(place - names.begin());
    if (place == names.end()) {
      names.push_back(peers[rank].host);
      hosts.emplace_back();
    }
    hosts[host].push_back(static_cast<int>(rank));
  }
  return hosts;
}

}  // namespace lockstep::comm
