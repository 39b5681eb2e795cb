#include <lockstep/core/cpu.h>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace lockstep {
namespace {

double processor_seconds_of(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

double processor_seconds() { return processor_seconds_of(RUSAGE_SELF); }

// The file holds nanoseconds on a processor, nanoseconds ready without one, and the number of time
// slices; three zeros if the kernel does not account (Documentation/scheduler/sched-stats.rst).
std::optional<double> processor_wait_seconds() {
  double ran = 0;
  double waited = 0;
  std::ifstream file("/proc/thread-self/schedstat");
  if (!(file >> ran >> waited) || ran <= 0) return std::nullopt;
  return 1e-9 * waited;
}

double processor_seconds_of_children() { return processor_seconds_of(RUSAGE_CHILDREN); }

long long proportional_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::stoll(line.substr(4)) * 1024;
  }
  return 0;
}

std::vector<int> available_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  } else {  // more than CPU_SETSIZE processors
    for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }
  return cpus;
}

std::vector<int> cpus_of_rank(const std::vector<int>& cpus, int local_rank, int local_world_size) {
  const int count = static_cast<int>(cpus.size());
  if (local_world_size > count) return {cpus[local_rank % count]};
  const int share = count / local_world_size;
  const int extra = count % local_world_size;
  const int begin = local_rank * share + std::min(local_rank, extra);
  const int length = share + (local_rank < extra ? 1 : 0);
  return {cpus.begin() + begin, cpus.begin() + begin + length};
}

std::vector<int> cpus_of_rank(const std::vector<std::vector<int>>& near, int local_rank) {
  const auto own = near.begin() + local_rank;
  return cpus_of_rank(*own, static_cast<int>(std::count(near.begin(), own, *own)),
                      static_cast<int>(std::count(near.begin(), near.end(), *own)));
}

bool pin_to_cpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

std::string simd_name() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "scalar";
#endif
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown processor";
}

long long rss_bytes() {
  long long pages = 0;
  long long resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

long long peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<long long>(usage.ru_maxrss) * 1024;
}

}  // namespace lockstep
