#include <lockstep/comm/group/profile.h>

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
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep {
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

std::string wanted_leaders(const ProcessGroupOptions& options, int world_rank) {
  const std::string wanted =
      options.leaders ? *options.leaders : environment_string("LOCKSTEP_LEADERS").value_or("auto");
  const std::vector<std::string>& known = leaders_names();
  if (std::find(known.begin(), known.end(), wanted) == known.end()) {
    throw ConfigError(lockstep::str("rank ", world_rank, ": leaders (LOCKSTEP_LEADERS) must be ",
                                    "one of ", join(known), ", got ", wanted));
  }
  return wanted;
}

std::string to_text(const Profile& profile) {
  return lockstep::str(profile.backend, '\n', profile.device, '\n', profile.gpu, '\n', profile.host,
                       '\n', profile.leaders, '\n', profile.world_rank, '\n', profile.label, '\n',
                       profile.joined_at, '\n', profile.process);
}

Profile profile_of(const std::string& text) {
  Profile profile;
  std::istringstream in(text);
  for (auto* field :
       {&profile.backend, &profile.device, &profile.gpu, &profile.host, &profile.leaders}) {
    std::getline(in, *field);
  }
  in >> profile.world_rank >> profile.label >> profile.joined_at >> profile.process;
  return profile;
}

void check_leaders(const std::vector<Profile>& profiles) {
  const Profile& first = profiles[0];
  for (const Profile& profile : profiles) {
    if (profile.leaders != first.leaders) {
      throw ConfigError(lockstep::str("ranks want different things: rank ", first.world_rank,
                                      " leaders ", first.leaders, ", rank ", profile.world_rank,
                                      " leaders ", profile.leaders, " (LOCKSTEP_LEADERS)"));
    }
  }
}

}  // namespace

Profile own_profile(const ProcessGroupOptions& options, int world_rank, const std::string& label) {
  const std::string host = host_identity(options);
  return {.backend = options.backend,
          .device = c10::DeviceTypeName(options.device.type(), /*lower_case=*/true),
          .gpu = device_identity(options.device, host),
          .host = host,
          .leaders = wanted_leaders(options, world_rank),
          .world_rank = world_rank,
          .label = label,
          .joined_at = std::time(nullptr),
          .process = getpid()};
}

std::vector<Profile> exchange_profiles(TextExchange& exchange, const Profile& own) {
  std::vector<Profile> profiles;
  for (const auto& text : exchange.exchange("choice of the backend", to_text(own))) {
    profiles.push_back(profile_of(text));
  }
  const Profile& first = profiles[0];
  for (std::size_t rank = 1; rank < profiles.size(); ++rank) {
    const Profile& other = profiles[rank];
    if (other.backend != first.backend || other.device != first.device) {
      throw ConfigError(lockstep::str("ranks want different things: rank ", first.world_rank,
                                      " backend ", first.backend, " on ", first.device, ", rank ",
                                      other.world_rank, " backend ", other.backend, " on ",
                                      other.device));
    }
  }
  check_leaders(profiles);
  return profiles;
}

std::string job_name(const std::vector<Profile>& profiles) {
  std::tm utc{};
  gmtime_r(&profiles[0].joined_at, &utc);
  std::ostringstream name;
  name << std::put_time(&utc, "%Y%m%dT%H%M%SZ") << '-' << profiles[0].process;
  return name.str();
}

bool each_has_a_gpu(const std::vector<Profile>& profiles) {
  std::set<std::string> gpus;
  for (const Profile& profile : profiles) {
    const bool has_one = profile.device == "cuda" && !profile.gpu.empty();
    if (!has_one || !gpus.insert(profile.gpu).second) return false;
  }
  return true;
}

std::string shared_devices(const std::vector<Profile>& profiles) {
  std::vector<std::string> devices;  // ordered by their first ranks
  std::map<std::string, std::vector<int>> ranks;
  for (const Profile& profile : profiles) {
    if (profile.gpu.empty()) continue;
    auto& on_it = ranks[profile.gpu];
    if (on_it.empty()) devices.push_back(profile.gpu);
    on_it.push_back(profile.world_rank);
  }
  std::string text;
  for (const std::string& device : devices) {
    if (ranks[device].size() < 2) continue;
    text += lockstep::str(text.empty() ? "ranks " : "; ranks ", join(ranks[device]), " share ",
                          text.empty() ? "a GPU" : "another");
  }
  return text;
}

std::vector<std::vector<int>> ranks_by_host(const std::vector<Profile>& profiles) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> hosts;
  for (std::size_t rank = 0; rank < profiles.size(); ++rank) {
    const auto place = std::find(names.begin(), names.end(), profiles[rank].host);
    const auto host = static_cast<std::size_t>(place - names.begin());
    if (place == names.end()) {
      names.push_back(profiles[rank].host);
      hosts.emplace_back();
    }
    hosts[host].push_back(static_cast<int>(rank));
  }
  return hosts;
}

}  // namespace lockstep
