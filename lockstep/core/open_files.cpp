#include <lockstep/core/open_files.h>

#include <sys/resource.h>

#include <lockstep/core/error.h>

namespace lockstep {

void require_open_files(int count, const std::string& what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto needed = static_cast<rlim_t>(count);
  if (limit.rlim_cur >= needed) return;
  const rlimit raised{needed, limit.rlim_max};
  if (limit.rlim_max >= needed && setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  throw ConfigError(str(what, " needs ", count, " open files, but this process may have ",
                        limit.rlim_cur, "; raise the limit (ulimit -n ", count, ")"));
}

}  // namespace lockstep
