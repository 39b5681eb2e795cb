// Checks of the module holder given to wrappers such as DataParallel.
#pragma once

#include <lockstep/core/error.h>

namespace lockstep::detail {

/// Returns the module in `holder`, a ModuleHolder or a shared_ptr. Throws a ConfigError that begins
/// with `owner` if it is null.
template <class Holder>
auto& module_in(Holder& holder, const char* owner) {
  if (!holder) {
    throw ConfigError(str(owner, ": the module is null; make the module before you wrap it"));
  }
  return *holder;
}

/// Throws a ConfigError that begins with `owner` unless `now` and `wrapped` hold the same module.
template <class Holder>
void require_same_module(const Holder& now, const Holder& wrapped, const char* owner) {
  if (now && &*now == &*wrapped) return;
  throw ConfigError(str(owner, ": module() is another module now; wrap it again"));
}

}  // namespace lockstep::detail
