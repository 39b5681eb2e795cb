#include <lockstep/launch/arrivals.h>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <new>

#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::launch {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "processes share it");

std::atomic<bool>* own_arrival = nullptr;

std::atomic<bool>* map_shared(std::size_t count) {
  void* memory = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(str("cannot map memory to share with the ranks: ", errno_text(errno)));
  }
  auto* first = static_cast<std::atomic<bool>*>(memory);
  for (std::size_t i = 0; i < count; ++i) new (first + i) std::atomic<bool>(false);
  return first;
}

}  // namespace

Arrivals::Arrivals(int nproc_per_node)
    : ranks_(nproc_per_node), came_(map_shared(static_cast<std::size_t>(nproc_per_node))) {}

Arrivals::~Arrivals() { munmap(came_, static_cast<std::size_t>(ranks_)); }

void Arrivals::become(int local_rank) { own_arrival = came_ + local_rank; }

bool Arrivals::has_come(int local_rank) const { return came_[local_rank]; }

}  // namespace lockstep::launch

namespace lockstep {

void joined_group() {
  if (launch::own_arrival != nullptr) *launch::own_arrival = true;
}

}  // namespace lockstep
