#include <lockstep/cli/bench_strategies/strategy_figures.h>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <type_traits>

#include <lockstep/core/error.h>

namespace lockstep {

static_assert(std::is_trivially_copyable_v<RankFigures> &&
              std::is_trivially_destructible_v<RankFigures>);

void RankFigures::set_backend(const std::string& name) {
  backend.fill(0);
  std::copy_n(name.begin(), std::min(name.size(), backend.size() - 1), backend.begin());
}

SharedFigures::SharedFigures(int ranks) : ranks_(ranks) {
  void* const memory =
      mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(str("bench step: cannot share memory with the ranks: ", errno_text(errno)));
  }
  first_ = static_cast<RankFigures*>(memory);
  std::uninitialized_default_construct_n(first_, ranks_);
}

SharedFigures::~SharedFigures() { munmap(first_, bytes()); }

}  // namespace lockstep
