#include <lockstep/parallel/base/thread_share.h>

#include <algorithm>
#include <mutex>

#include <dlfcn.h>

#include <ATen/Parallel.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {

std::vector<int> detail::divided_threads(int threads, std::size_t members) {
  const int count = static_cast<int>(members);
  std::vector<int> shares;
  for (int member = 0; member < count; ++member) {
    shares.push_back(std::max(1, threads / count + (member < threads % count ? 1 : 0)));
  }
  return shares;
}

// LibTorch sets a thread's number of threads to the process's at its first parallel operation. The
// library does so, and so do its inline functions, which are compiled here. Both must have happened
// before the thread's own number is set.
void detail::set_threads_of_members(ThreadTeam& team, const std::vector<int>& counts) {
  LOCKSTEP_CHECK(counts.size() == team.size(), "a team of ", team.size(), " threads got ",
                 counts.size(), " numbers of threads");
  const int threads = at::get_num_threads();
  std::mutex mutex;  // the members also write the process's number
  team.run([&](std::size_t member) {
    const std::scoped_lock lock(mutex);
    static_cast<void>(at::get_num_threads());
    at::internal::lazy_init_num_threads();
    at::set_num_threads(std::max(1, counts[member]));
  });
  at::set_num_threads(threads);
}

void detail::keep_members_apart(ThreadTeam& team, const std::vector<int>& counts) {
  LOCKSTEP_CHECK(counts.size() == team.size(), "a team of ", team.size(), " threads got ",
                 counts.size(), " numbers of threads");
  const std::vector<int> cpus = available_cpus();
  const int members = static_cast<int>(team.size());
  if (cpus.size() < team.size()) return;
  for (int member = 0; member < members; ++member) {
    const std::size_t share = cpus_of_rank(cpus, member, members).size();
    if (counts[static_cast<std::size_t>(member)] > static_cast<int>(share)) return;
  }
  team.run([&](std::size_t member) {
    const std::vector<int> share = cpus_of_rank(cpus, static_cast<int>(member), members);
    if (!pin_to_cpus(share)) log_debug("cannot keep a thread on processors ", join(share));
  });
}

SingleThreadScope::SingleThreadScope() : before_(at::get_num_threads()) { at::set_num_threads(1); }

SingleThreadScope::~SingleThreadScope() { at::set_num_threads(before_); }

void detail::release_helping_threads() {
  // Looked up at run time because LibTorch brings its own OpenMP library, and g++'s header may be
  // too old for it.
  using PauseResourceAll = int (*)(int);
  static const auto pause =
      reinterpret_cast<PauseResourceAll>(dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));
  constexpr int kPauseSoft = 1;  // omp_pause_soft: settings of the program are kept
  if (pause) pause(kPauseSoft);
}

}  // namespace lockstep
