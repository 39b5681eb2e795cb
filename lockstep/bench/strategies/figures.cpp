#include <lockstep/bench/strategies/figures.h>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <lockstep/core/error.h>

namespace lockstep::bench {

void RankFigures::set_backend(const std::string& name) {
  backend.fill(0);
  std::copy_n(name.begin(), std::min(name.size(), backend.size() - 1), backend.begin());
}

void SharedNote::set(const std::string& text) {
  if (text.size() >= bytes.size()) throw InternalError("bench step: a note is too long to share");
  bytes.fill(0);
  std::copy(text.begin(), text.end(), bytes.begin());
}

void* detail::map_shared(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(str("bench step: cannot share memory with the ranks: ", errno_text(errno)));
  }
  return memory;
}

void detail::unmap_shared(void* memory, std::size_t bytes) { munmap(memory, bytes); }

}  // namespace lockstep::bench
